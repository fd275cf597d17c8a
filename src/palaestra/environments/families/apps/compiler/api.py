"""What a service offers: APIs with schemas, and how they answer.

An API is compiled from an entity (`endpoints.py`) or written by hand as a verb (`verbs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.environments.families.apps.compiler.blueprint import (
    FORMS,
    Blueprint,
    Column,
    Entity,
    qualified,
)
from palaestra.environments.families.apps.state import Row, State

JSON_TYPES = {"integer": "integer", "person": "integer", "money": "number", "boolean": "boolean"}


class ApiError(Exception):
    """A refusal of a service: an HTTP status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls an API, and the world as a service sees it."""

    state: State
    blueprints: Mapping[str, Blueprint]
    person: int  # the id in `supervisor.person` of whoever is signed in; 0: nobody
    now: str  # the world's time, as in fields of the type `time`
    advance: Callable[[int, bool], str] | None = None  # lets time pass, see `World.advance`

    def email(self) -> str:
        """Return the caller's address."""
        me = self.state.get("supervisor.person", self.person)
        return str(me["email"]) if me else ""

    def works_for(self, app: str) -> bool:
        """Return whether the caller is of the staff of an app, who may read and change all rows."""
        blueprint = self.blueprints[app]
        if not blueprint.staff:
            return False
        owner = blueprint.entities[blueprint.staff].owner
        return bool(self.state.find(f"{app}.{blueprint.staff}", **{owner: self.person}))

    def readable(self, table: str) -> tuple[str, list[object]]:
        """Return the SQL condition, and its values, for the rows that the caller may read."""
        app, _, name = table.partition(".")
        entity = self.blueprints[app].entities[name]
        if entity.public or self.works_for(app):
            return "1", []
        parts, values = [f'"{entity.owner}" = ?'], list[object]([self.person])
        self._read_by(entity, parts, values)
        if entity.shared:
            readers: list[str] = []
            self._read_by(self.blueprints[app].entities[entity.shared], readers, values)
            link = self.blueprints[app].link(entity.shared, name)
            rows = f'SELECT "{link}" FROM "{app}.{entity.shared}" WHERE {" OR ".join(readers)}'
            parts.append(f"id IN ({rows})")
        if entity.within:
            whole = qualified(app, entity.fields[entity.within].refers)
            condition, known = self.readable(whole)
            parts.append(f'"{entity.within}" IN (SELECT id FROM "{whole}" WHERE {condition})')
            values += known
        return f"({' OR '.join(parts)})", values

    def _read_by(self, entity: Entity, parts: list[str], values: list[object]) -> None:
        """Add the conditions under which the caller is one of a row's readers."""
        for reader in entity.readers:
            parts.append(f'"{reader}" = ?')
            values.append(self.email() if entity.fields[reader].type == "email" else self.person)

    def read(self, table: str, id: int) -> Row:
        """Return a row that the caller may read; raises ApiError 404."""
        condition, values = self.readable(table)
        found = self.state.rows(table, f"id = ? AND {condition}", [id, *values])
        if not found:
            raise ApiError(404, f"There is no {table.partition('.')[2]} with the id {id}.")
        return found[0]

    def own(self, table: str, id: int) -> Row:
        """Return a row that the caller may change; raises ApiError 404 or 403."""
        app, _, name = table.partition(".")
        entity, row = self.blueprints[app].entities[name], self.read(table, id)
        if self.works_for(app):
            return row
        if not entity.owner or row[entity.owner] != self.person:
            raise ApiError(403, f"The {name} with the id {id} is not yours to change.")
        return row


@dataclass(frozen=True, slots=True)
class Api:
    """One function of a service."""

    app: str
    name: str
    about: str
    parameters: Mapping[str, Any]  # a JSON schema of type "object"
    changes: bool  # whether it may change anything
    run: Callable[[Caller, Mapping[str, Any]], Any]  # raises ApiError
    returns: Mapping[str, Any] = field(default_factory=dict)  # a JSON schema of what it answers
    errors: Mapping[int, str] = field(default_factory=dict)  # its own, beside those of every API

    @property
    def full_name(self) -> str:
        return f"{self.app}.{self.name}"


def schema_of(column: Column) -> dict[str, Any]:
    """Return the JSON schema of a field's values."""
    if column.type == "choice":
        return {"type": "string", "enum": list(column.choices)}
    schema: dict[str, Any] = {"type": JSON_TYPES.get(column.type, "string")}
    words = column.about
    if column.type in FORMS:
        words = f"{words or column.type}, such as {FORMS[column.type][1]}"
    kind = "Length" if schema["type"] == "string" else "imum"
    for bound, size in (("min", column.least), ("max", column.most)):
        if size is not None:
            schema[bound + kind] = int(size) if size == int(size) else size
    return schema | ({"description": words} if words else {})
