"""Signing in: a password for an access token."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from palaestra.environments.families.apps.compiler.api import Api, ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import Blueprint

CREDENTIALS = "supervisor.credential"
LONGEST_ID = 19  # digits; SQLite's integers have 64 bits
TEXT = {"type": "string"}
ANSWER = {"type": "object", "properties": {"access_token": TEXT}}


def login(blueprint: Blueprint) -> Api:
    """Return the API that gives an access token for an app."""

    def run(caller: Caller, given: Mapping[str, Any]) -> Any:
        found = caller.state.find(
            CREDENTIALS,
            app=blueprint.app,
            username=given["username"],
            password=given["password"],
        )
        if not found:
            raise ApiError(401, "The username or the password is wrong.")
        return {"access_token": token(found[0])}

    parameters = {
        "type": "object",
        "properties": {"username": TEXT, "password": TEXT},
        "required": ["username", "password"],
    }
    return Api(
        blueprint.app, "login", "Sign in for an access token.", parameters, False, run, ANSWER
    )


def token(credential: Mapping[str, Any]) -> str:
    """Return the access token of a row of credentials; a new password gives a new one."""
    secret = "|".join(str(credential[key]) for key in ("app", "username", "password"))
    # With the row's id, so that the row is found without hashing all.
    return f"{credential['id']}.{hashlib.blake2b(secret.encode(), digest_size=8).hexdigest()}"


def holder(caller: Caller, app: str, given: str) -> int | None:
    """Return the person to whom an app's access token belongs."""
    id = given.partition(".")[0]
    if not (id.isascii() and id.isdigit() and len(id) < LONGEST_ID):
        return None
    row = caller.state.get(CREDENTIALS, int(id))
    valid = row is not None and row["app"] == app and token(row) == given
    return int(row["owner"]) if row is not None and valid else None
