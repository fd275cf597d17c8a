"""Notifications: what others changed that concerns the person for whom an agent acts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from palaestra.environments.families.apps.compiler.blueprint import Blueprint, Entity
from palaestra.environments.families.apps.compiler.endpoints import Endpoints
from palaestra.environments.families.apps.state import Change, Row

WORDS = {"insert": "new", "update": "changed", "delete": "deleted"}


def notification(
    change: Change, blueprints: Mapping[str, Blueprint], person: int, email: str
) -> str | None:
    """Return what a person is told of a change, such as `mail, new message: {"id": 7, …}`.

    It has what a list of such rows shows; of a changed row the new values.

    Returns:
        None: the row is not theirs, and they may not read it.
    """
    app, _, name = change.table.partition(".")
    entity = blueprints[app].entities[name]
    row = change.after or change.before or {}
    if not _concerns(entity, row, person, email):
        return None
    shown: Row = {"id": change.id}
    if change.kind != "delete":
        brief = Endpoints(blueprints[app], name).brief(row)
        shown |= {key: value for key, value in brief.items() if key in change.values}
    told = {key: value for key, value in shown.items() if value is not None and value != email}
    return f"{app}, {WORDS[change.kind]} {name}: {json.dumps(told, ensure_ascii=False)}"


def _concerns(entity: Entity, row: Row, person: int, email: str) -> bool:
    """Return whether a row is the person's own, or they are named among its readers."""
    if entity.owner and row[entity.owner] == person:
        return True
    return any(row[reader] in (person, email) for reader in entity.readers)
