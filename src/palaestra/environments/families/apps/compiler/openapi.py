"""What an app says of itself: an OpenAPI document for programs, and a text for agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.api import Api

GENERAL = {
    400: "an argument is missing or unknown",
    401: "the access token is missing or not valid",
    413: "the arguments are too long",
    422: "an argument has a wrong type, form or value",
    429: "there were too many changes in a minute",
}
"""The statuses with which every API may refuse."""

WRONG_PASSWORD = "the username or the password is wrong"
ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "one sentence"}},
    "required": ["error"],
}
TOKEN = {"type": "string", "description": "from `login`; not needed by who is signed in"}


def errors(app: App, api: Api) -> dict[int, str]:
    """Return all statuses with which an API may refuse, and why."""
    general = dict(GENERAL)
    if api.name == "login":
        general[401] = WRONG_PASSWORD
    if not api.changes or app.blueprint.changes_per_minute is None:
        del general[429]
    return dict(sorted({**general, **api.errors}.items()))


def openapi(app: App) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an app: each API is a POST of its arguments."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": app.name,
            "description": app.blueprint.about,
            "version": str(app.blueprint.version),
        },
        "servers": [{"url": f"/{app.name}"}],
        "paths": {f"/{api.name}": {"post": _operation(app, api)} for api in app.apis.values()},
        "components": {"schemas": {"Error": ERROR}},
    }


def body_schema(app: App, api: Api) -> dict[str, Any]:
    """Return the JSON schema of an API's arguments, with the access token if it wants one."""
    body = dict(api.parameters)
    if app.blueprint.private and api.name != "login":
        body["properties"] = body["properties"] | {"access_token": TOKEN}
    return body


def _operation(app: App, api: Api) -> dict[str, Any]:
    body = body_schema(app, api)
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answer = {"application/json": {"schema": dict(api.returns)}}
    return {
        "operationId": api.name,
        "summary": api.about,
        "requestBody": {
            "required": bool(body.get("required")),
            "content": {"application/json": {"schema": body}},
        },
        "responses": {
            "200": {"description": "what it answers", "content": answer},
            **{
                str(status): {"description": reason, "content": refusal}
                for status, reason in errors(app, api).items()
            },
        },
    }


def documentation(app: App) -> str:
    """Return what an agent reads about an app: what holds for all its APIs, then each."""
    blueprint = app.blueprint
    lines = [f"{app.name}: {blueprint.about}"]
    if blueprint.private:
        lines.append(
            f"Calls need an access_token, which {app.name}.login gives for a username and password."
        )
    if blueprint.changes_per_minute is not None:
        lines.append(f"At most {blueprint.changes_per_minute} changes a minute.")
    limited = blueprint.changes_per_minute is not None
    general = "; ".join(
        f"{status}: {reason}" for status, reason in GENERAL.items() if status != 429 or limited
    )
    lines.append(f'A refusal is {{"error": "..."}} with a status. Of every API: {general}.')
    return "\n".join(lines) + "\n\n" + "\n\n".join(map(api_documentation, app.apis.values()))


def api_documentation(api: Api) -> str:
    """Return what an agent reads about an API: its call, arguments, answer and own errors."""
    properties: Mapping[str, Any] = api.parameters["properties"]
    required = api.parameters.get("required", ())
    call = ", ".join(
        name
        if name in required
        else f"{name}={json.dumps(schema['default'])}"
        if "default" in schema
        else f"[{name}]"
        for name, schema in properties.items()
    )
    lines = [f"{api.full_name}({call})", api.about]
    for name, schema in properties.items():
        about = f", {schema['description']}" if "description" in schema else ""
        lines.append(f"- {name}: {_type(schema)}{about}{_bounds(schema)}")
    if api.returns:
        lines.append(f"Returns {_type(api.returns)}.")
    if api.errors:
        listed = "; ".join(f"{status}: {reason}" for status, reason in api.errors.items())
        lines.append(f"Errors: {listed}.")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in words, such as `{id: integer, name: string}`."""
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"[{_type(schema.get('items', {}))}, ...]"
    if kind == "object" and "properties" in schema:
        inner = ", ".join(f"{name}: {_type(part)}" for name, part in schema["properties"].items())
        return f"{{{inner}}}"
    return kind if isinstance(kind, str) else " or ".join(kind)


def _bounds(schema: Mapping[str, Any]) -> str:
    """Return the limits of a number or of a text's length in words."""
    unit = " characters" if schema.get("type") == "string" else ""
    least = schema.get("minLength", schema.get("minimum"))
    most = schema.get("maxLength", schema.get("maximum"))
    parts = [f"at least {least}"] if least is not None else []
    parts += [f"at most {most}"] if most is not None else []
    return f", {' and '.join(parts)}{unit}" if parts else ""
