"""Lineage: which version of the policy learned which rows, from whom, and under what licence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.environments.registry import families
from palaestra.models.registry import licence_of
from palaestra.store.database import Database

NO_MODELS = ("policy", "expert", "random", "recorded", "text")  # speakers that are no named models
LINEAGE = "lineage"  # the document: a list of versions, in the order in which they were made


def note_version(
    store: Database,
    version: str,
    *,
    does: str,
    start: list[str],
    teacher: str | None,
    rows: Mapping[str, Any],
    environment: str,
) -> None:
    """Record how a version was made; replace an earlier note of the same version.

    Args:
        store: of the run.
        version: its record.
        does: what the stage that made it does.
        start: the versions that it began with.
        teacher: the version that taught it; None: none but these.
        rows: what it learned: by phase of the run, rows, tokens and who spoke.
        environment: whose episodes these are, where the rows name no other.
    """
    known = [one for one in store.get(LINEAGE) or [] if one["version"] != version]
    found = {
        "version": version,
        "does": does,
        "start": start,
        "rows": dict(rows),
        **({} if teacher is None else {"teacher": teacher}),
        **({} if not (models := _models(rows)) else {"models": models}),
        **({} if not (levels := _levels(rows, environment)) else {"levels": levels}),
        "environment": environment,
        "licence": _licence_of(environment),
    }
    store.put(LINEAGE, [*known, found])


def _models(rows: Mapping[str, Any]) -> dict[str, str]:
    """Return the licences of the models that spoke in rows, by name; empty where unknown."""
    names = dict.fromkeys(of["speaker"] for of in rows.values())
    return {name: licence_of(name) for name in names if name not in NO_MODELS}


def _levels(rows: Mapping[str, Any], environment: str) -> dict[str, str]:
    """Return the licences of other environments that rows are of, by name."""
    names = dict.fromkeys(name for of in rows.values() for name in of.get("environments", ()))
    return {name: _licence_of(name) for name in names if name != environment}


def _licence_of(environment: str) -> str:
    """Return the licence of an environment's package and data; empty if it is unknown."""
    family = families().get(environment.partition("/")[0].partition("@")[0])
    return "" if family is None else family.licence
