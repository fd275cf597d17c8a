"""Lineage: which version of the policy learned which rows, from whom, and under what licence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.environments.registry import families
from palaestra.store.database import Database

LINEAGE = "lineage"  # the document: a list of versions, in the order in which they were made


def note_version(
    store: Database,
    version: str,
    *,
    does: str,
    start: list[str],
    rows: Mapping[str, Any],
    environment: str,
) -> None:
    """Record how a version was made; replace an earlier note of the same version.

    Args:
        store: of the run.
        version: its record.
        does: what the stage that made it does.
        start: the versions that it began with.
        rows: what it learned: by phase of the run, rows, tokens and who spoke.
        environment: whose episodes these are.
    """
    known = [one for one in store.get(LINEAGE) or [] if one["version"] != version]
    found = {
        "version": version,
        "does": does,
        "start": start,
        "rows": dict(rows),
        "environment": environment,
        "licence": _licence_of(environment),
    }
    store.put(LINEAGE, [*known, found])


def _licence_of(environment: str) -> str:
    """Return the licence of an environment's package and data; empty if it is unknown."""
    family = families().get(environment.partition("/")[0].partition("@")[0])
    return "" if family is None else family.licence
