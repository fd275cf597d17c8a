"""Blueprints: what an app stores, who may read and change it, and how it may change.

A blueprint is a TOML file of about ten lines per entity:

    app = "calendar"
    about = "Events, and who is invited to them."

    [entities.event]
    about = "Something at a time."
    owner = "owner"
    search = ["title", "place"]
    fields.owner = {type = "person", by = "service"}
    fields.title = {type = "text", most = 80}
    fields.starts = "time"
    fields.place = {type = "text", most = 80, default = ""}

Tables, endpoints, permissions, validation, and documentation follow from it (`endpoints.py`,
`tables.py`, `openapi.py`). What an app can do beyond that is a verb (`verbs.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from palaestra.core.errors import InputError

NAME = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
Kind = Literal[
    "text", "email", "phone", "integer", "money", "boolean", "time", "date", "choice", "person",
    "document",
]  # fmt: skip
Endpoint = Literal["list", "search", "show", "create", "update", "delete"]
ENDPOINTS: tuple[Endpoint, ...] = ("list", "search", "show", "create", "update", "delete")
Scalar = str | bool | int | float | None
COUNTS = ("page", "pages", "total")  # what a list says of itself, beside its rows
RESERVED = ("id", "page", "per_page", "query", "access_token", "sort_by")
LONGEST = 10_000  # characters of a text without a limit of its own


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Table):
    """One field of an entity. `fields.x = "text"` is short for `{type = "text"}`."""

    type: Kind  # a `document` (see `office_formats.py`) is seen through verbs alone
    about: str = ""
    refers: str = ""  # integers: the entity whose ids they are, of this app or `app.entity`
    choices: tuple[str, ...] = ()  # of a choice
    least: float | None = None  # the smallest number, or the fewest characters
    most: float | None = None  # the largest number, or the most characters
    default: Scalar = None  # without one, `create` requires the field
    by: Literal["person", "service"] = "person"  # who sets it; the service: no argument of `create`
    fixed: bool = False  # `update` cannot change it
    free: bool = False  # its wording is not compared when a task's result is judged


class Entity(_Table):
    """A kind of row."""

    about: str
    fields: dict[str, Column]
    owner: str = ""  # the field with the person to whom a row belongs; empty: to everybody
    readers: tuple[str, ...] = ()  # further fields with a person or an address who may read it
    shared: str = ""  # an entity with a row, of some readers, for each share of a row of this one
    within: str = ""  # a field with a row: whoever may read that one may read this one
    public: bool = False  # everybody may read it
    search: tuple[str, ...] = ()  # the fields in which `search` looks
    unique: tuple[tuple[str, ...], ...] = ()  # fields that no two rows of one owner share
    moves: dict[str, dict[str, tuple[str, ...]]] = {}  # lawful changes of a choice: from → to
    endpoints: tuple[Endpoint, ...] = ENDPOINTS
    most: int | None = Field(default=None, gt=0)  # rows that one owner may have

    @field_validator("fields", mode="before")
    @classmethod
    def _short(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {k: {"type": v} if isinstance(v, str) else v for k, v in fields.items()}

    @property
    def seen_by_others(self) -> bool:
        """Whether anybody but the owner may read a row."""
        return bool(self.public or self.readers or self.shared or self.within)

    @cached_property
    def documents(self) -> tuple[str, ...]:
        """The fields with documents."""
        return tuple(name for name, column in self.fields.items() if column.type == "document")

    def arguments(self) -> dict[str, Column]:
        """Return the fields that a person sets."""
        return {name: column for name, column in self.fields.items() if column.by == "person"}


class Blueprint(_Table):
    """One app."""

    app: str = Field(pattern=f"^{NAME}$")
    about: str
    version: int = 1
    entities: dict[str, Entity]  # none: an app of verbs alone, which no file can describe
    private: bool = True  # calls need an access token, from `login`
    staff: str = ""  # the entity whose owners work for the app: they read and change all its rows
    changes_per_minute: int | None = Field(default=None, gt=0)  # of one person; beyond: status 429
    seconds: dict[str, Annotated[int, Field(ge=0)]] = {}
    """How long calls take, by the name of the API; without an entry a change one second, and what
    changes nothing no time."""

    @cached_property
    def references(self) -> list[tuple[str, str, str]]:
        """The fields that refer to rows: (entity, field, `app.entity`)."""
        return [
            (entity, name, qualified(self.app, column.refers))
            for entity, made in self.entities.items()
            for name, column in made.fields.items()
            if column.refers
        ]

    def link(self, entity: str, target: str) -> str:
        """Return the first field of an entity that refers to another one; empty if none does."""
        fields = self.entities[entity].fields
        return next((name for name, column in fields.items() if column.refers == target), "")


def qualified(app: str, entity: str) -> str:
    """Return the table of an entity that a blueprint of `app` names."""
    return entity if "." in entity else f"{app}.{entity}"


def parse(text: str, source: str = "the blueprint") -> Blueprint:
    """Return the blueprint in a TOML text.

    Raises:
        InputError: it is no TOML, has unknown or missing keys, or contradicts itself; the message
            names the line.
    """
    try:
        blueprint = Blueprint.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        raise _wrong(text, source, where, f"{'.'.join(where)}: {first['msg']}") from None
    for where, reason in contradictions(blueprint):
        raise _wrong(text, source, where, reason)
    return blueprint


def contradictions(blueprint: Blueprint) -> Iterator[tuple[list[str], str]]:
    """Yield each contradiction: the keys that lead to it, and a sentence without its full stop."""
    staff = blueprint.entities.get(blueprint.staff)
    if blueprint.staff and (staff is None or not staff.owner):
        yield ["staff"], f"`staff` is '{blueprint.staff}', which is no entity with an owner"
    if not blueprint.entities:
        yield ["entities"], "entities: there is none; describe at least one"
    for name, entity in blueprint.entities.items():
        at = ["entities", name]
        if not re.fullmatch(NAME, name):
            yield at, f"'{name}' is no name for an entity; write small letters and underscores"
        if f"{name}s" in COUNTS:
            yield at, f"entity '{name}' has a plural that lists use for themselves; rename it"
        for reason in (*_wrong_entity(entity), *_wrong_share(blueprint, name)):
            yield at, f"entity '{name}' {reason}"
        for field, column in entity.fields.items():
            for reason in _wrong_column(field, column):
                yield [*at, "fields", field], f"field '{field}' of entity '{name}' {reason}"
            target = column.refers
            if target and "." not in target and target not in blueprint.entities:
                yield (
                    [*at, "fields", field],
                    f"field '{field}' of entity '{name}' refers to '{target}', which is no entity; "
                    f"choose one of {', '.join(blueprint.entities)}",
                )


def _wrong_entity(entity: Entity) -> Iterator[str]:
    fields = entity.fields

    def unknown(key: str, names: tuple[str, ...]) -> Iterator[str]:
        for name in names:
            if name not in fields:
                known = ", ".join(fields)
                yield f"names the field '{name}' in `{key}`, and has only {known}"

    yield from unknown("owner", (entity.owner,) if entity.owner else ())
    yield from unknown("readers", entity.readers)
    yield from unknown("within", (entity.within,) if entity.within else ())
    yield from unknown("search", entity.search)
    yield from unknown("unique", tuple(name for names in entity.unique for name in names))
    yield from unknown("moves", tuple(entity.moves))
    if entity.owner in fields and fields[entity.owner].type != "person":
        yield f"is owned by the field '{entity.owner}', which must have the type 'person'"
    if entity.owner in fields and fields[entity.owner].by == "person":
        yield f"lets people set its owner; write `by = \"service\"` for '{entity.owner}'"
    if not entity.owner and not entity.public:
        yield "has no owner and is not public, so nobody could read it; set one of them"
    for name in entity.readers:
        if name in fields and fields[name].type not in ("person", "email"):
            yield f"lets '{name}' read it, which must have the type 'person' or 'email'"
    if entity.within in fields and not fields[entity.within].refers:
        yield f"lies within '{entity.within}', which must refer to an entity"
    for name in entity.search:
        if name in fields and fields[name].type not in ("text", "email", "phone", "choice"):
            yield f"searches '{name}', which is no text"
    if "search" in entity.endpoints and not entity.search and entity.endpoints != ENDPOINTS:
        yield "has the endpoint 'search' and no fields in `search`; name some"
    for name, moves in entity.moves.items():
        if name in fields:
            states = {*moves, *(to for many in moves.values() for to in many)}
            for state in sorted(states - set(fields[name].choices)):
                yield f"moves '{name}' from or to '{state}', which is none of its choices"


def _wrong_share(blueprint: Blueprint, name: str) -> Iterator[str]:
    chain = [name]
    while (last := blueprint.entities.get(chain[-1])) and last.within in last.fields:
        target = last.fields[last.within].refers
        if target in chain or "." in target:
            yield f"lies within '{target}', which must be another entity of this app, and not in it"
            break
        chain.append(target)
    share = blueprint.entities[name].shared
    if share and share not in blueprint.entities:
        known = ", ".join(blueprint.entities)
        yield f"is shared by '{share}', which is no entity; choose one of {known}"
    elif share and not (blueprint.entities[share].readers and blueprint.link(share, name)):
        yield f"is shared by '{share}', which needs `readers` and a field that refers to '{name}'"


def _wrong_column(name: str, column: Column) -> Iterator[str]:
    if not re.fullmatch(NAME, name) or name in RESERVED:
        yield "has a name that is reserved or not of small letters and underscores; rename it"
    if (column.type == "choice") != bool(column.choices):
        yield "needs the type 'choice' together with `choices`, or neither"
    if column.type == "document" and column.by == "person":
        yield 'is a document, which only verbs write; add `by = "service"`'
    if column.refers and column.type != "integer":
        yield "refers to rows, so it must have the type 'integer'"
    if column.least is not None and column.most is not None and column.least > column.most:
        yield f"has a least of {column.least:g} above its most of {column.most:g}"
    if column.default is not None and (problem := refusal(column, column.default)):
        yield f"has a default that it would refuse ({problem})"
    if column.by == "service" and column.fixed:
        yield "is set by the service, so `fixed` says nothing; leave it out"


def refusal(column: Column, value: Any) -> str | None:
    """Return why a field does not take a value; None if it does."""
    if column.type == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if column.type in ("integer", "money", "person"):
        whole = column.type != "money"
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            return "must be a whole number" if whole else "must be a number"
        if not -1e12 < value < 1e12:
            return "is too large a number"
        if column.type == "money" and round(value, 2) != value:
            return "must have at most two decimals"
        return _beyond(column, value, "", 1)
    if not isinstance(value, str):
        return "must be a text"
    if column.type == "choice":
        known = ", ".join(column.choices)
        return None if value in column.choices else f"must be one of {known}"
    if column.type in FORMS and not _well_formed(column.type, value):
        return f"must look like {FORMS[column.type][1]}"
    if len(value) > (longest := LONGEST if column.most is None else column.most):
        return f"must have at most {longest:g} characters"
    return _beyond(column, len(value), " characters", 0)


FORMS = {
    "email": (r"[^@\s]+@[^@\s]+\.[^@\s]+", "name@example.com"),
    "phone": (r"\+?[0-9][0-9 -]{4,18}", "555-0134"),
    "date": (r"\d{4}-\d\d-\d\d", "2026-03-31"),
    "time": (r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-03-31 14:30"),
}
"""The forms of texts, and an example of each."""


def _well_formed(kind: str, value: str) -> bool:
    if not re.fullmatch(FORMS[kind][0], value, re.ASCII):
        return False
    if kind in ("date", "time"):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return False
    return True


def _beyond(column: Column, size: float, unit: str, default: int) -> str | None:
    if column.least is not None and size < column.least:
        return f"must be at least {column.least:g}{unit}"
    if default and column.most is not None and size > column.most:
        return f"must be at most {column.most:g}{unit}"
    return None


def _wrong(text: str, source: str, where: list[str], reason: str) -> InputError:
    return InputError(f"{source}, line {line_of(text, where)}: {reason}.")


def line_of(text: str, where: list[str]) -> int:
    """Return the number of the line that a path of keys leads to, or the deepest part of it."""
    lines, best, depth = text.splitlines(), 1, 0
    section: list[str] = []
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[+([^\]]+)\]+", line):
            section = header[1].strip().split(".")
            path = section
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = [*section, *key[1].split(".")]
        else:
            continue
        if path == where[: len(path)] and len(path) > depth:
            best, depth = number, len(path)
    return best


def columns(blueprints: Mapping[str, Blueprint]) -> dict[str, dict[str, Column]]:
    """Return the columns of all tables, by `app.entity`."""
    return {
        f"{app}.{name}": dict(entity.fields)
        for app, blueprint in blueprints.items()
        for name, entity in blueprint.entities.items()
    }
