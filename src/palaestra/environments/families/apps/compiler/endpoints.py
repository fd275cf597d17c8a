"""The endpoints that follow from an entity: list, search, show, create, update and delete."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from palaestra.environments.families.apps.compiler.api import Api, ApiError, Caller, schema_of
from palaestra.environments.families.apps.compiler.blueprint import (
    Blueprint,
    Column,
    Endpoint,
    Entity,
    qualified,
    refusal,
)
from palaestra.environments.families.apps.state import Row

PAGE, LARGEST_PAGE = 5, 20  # rows of a page
FILTERED = ("choice", "boolean", "person", "email", "date")  # types by which `list` can filter
STAMPED = ("time", "date", "email")  # types whose values a service sets when a row is made
LONGEST_QUERY = 200  # characters
Run = Callable[[Caller, Mapping[str, Any]], Any]
WHOLE = {"type": "integer"}
PAGING = {"page": WHOLE, "per_page": WHOLE}


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of one entity."""

    blueprint: Blueprint
    name: str

    @property
    def entity(self) -> Entity:
        return self.blueprint.entities[self.name]

    @property
    def table(self) -> str:
        return f"{self.blueprint.app}.{self.name}"

    def apis(self) -> Iterator[Api]:
        """Yield the entity's APIs in the order list, search, show, create, update, delete."""
        entity, name, key = self.entity, self.name, f"{self.name}_id"
        given = {field: schema_of(column) for field, column in entity.arguments().items()}
        made = {
            field: schema
            | ({} if (default := entity.fields[field].default) is None else {"default": default})
            for field, schema in given.items()
        }
        required = [f for f, column in entity.arguments().items() if column.default is None]
        changeable = {f: s for f, s in given.items() if not entity.fields[f].fixed}
        filters = {
            field: schema_of(column)
            for field, column in entity.fields.items()
            if field not in self._implied and (column.type in FILTERED or column.refers)
        }
        a_name = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        words = {"description": "words that must all occur", "maxLength": LONGEST_QUERY}
        query = {"query": {"type": "string"} | words}
        ways: dict[Endpoint, tuple[str, str, dict[str, Any], list[str], Run]] = {
            "list": (f"{name}s", f"List {name}s.", filters | PAGING, [], self.rows),
            "search": (
                f"{name}s",
                f"Search {name}s by {', '.join(entity.search)}.",
                query | PAGING,
                ["query"],
                self.search,
            ),
            "show": (name, f"Show one {name}.", {key: WHOLE}, [key], self.show),
            "create": (name, f"Make {a_name}.", made, required, self.create),
            "update": (name, f"Change {a_name}.", {key: WHOLE} | changeable, [key], self.update),
            "delete": (name, f"Delete {a_name}.", {key: WHOLE}, [key], self.delete),
        }
        for way, (noun, about, properties, needed, run) in ways.items():
            if way not in entity.endpoints or (way == "search" and not entity.search):
                continue
            if way == "update" and not changeable:
                continue
            parameters = {"type": "object", "properties": properties, "required": needed}
            changes = way in ("create", "update", "delete")
            yield Api(
                self.blueprint.app,
                f"{way}_{noun}",
                about,
                parameters,
                changes,
                run,
                self._returns(way),
                self._errors(way),
            )

    # ── what they do ─────────────────────────────────────────────────────────

    def rows(self, caller: Caller, given: Mapping[str, Any]) -> Any:
        condition, values = caller.readable(self.table)
        for field, value in given.items():
            if field not in PAGING:
                condition += f' AND "{field}" = ?'
                values.append(value)
        return self._page(caller, given, condition, values)

    def search(self, caller: Caller, given: Mapping[str, Any]) -> Any:
        condition, values = caller.readable(self.table)
        query = str(given["query"])
        if len(query) > LONGEST_QUERY:
            raise ApiError(422, f"'query' must have at most {LONGEST_QUERY} characters.")
        for word in query.split():
            parts = [f"\"{field}\" LIKE ? ESCAPE '\\'" for field in self.entity.search]
            condition += f" AND ({' OR '.join(parts)})"
            values += [f"%{_escaped(word)}%"] * len(parts)
        return self._page(caller, given, condition, values)

    def show(self, caller: Caller, given: Mapping[str, Any]) -> Row:
        return self.shown(caller.read(self.table, given[f"{self.name}_id"]))

    def create(self, caller: Caller, given: Mapping[str, Any]) -> Row:
        entity = self.entity
        row: Row = {
            field: column.default
            for field, column in entity.fields.items()
            if field not in given or column.by == "service"
        } | dict(given)
        for field, column in entity.fields.items():
            if column.by == "service" and column.default is None:
                row[field] = caller.person if field == entity.owner else _stamp(column.type, caller)
        self._check(caller, given)
        if entity.owner and entity.most is not None:
            owned = caller.state.count(self.table, f'"{entity.owner}" = ?', [caller.person])
            if owned >= entity.most:
                raise ApiError(409, f"You have {entity.most} {self.name}s, which is the most.")
        try:
            id = caller.state.insert(self.table, row)
        except sqlite3.IntegrityError:
            raise self._clash() from None
        return self.shown({"id": id, **row})

    def update(self, caller: Caller, given: Mapping[str, Any]) -> Row:
        id = given[f"{self.name}_id"]
        values = {field: value for field, value in given.items() if field != f"{self.name}_id"}
        if not values:
            raise ApiError(400, "Name at least one field to change.")
        row = caller.own(self.table, id)
        self._check(caller, values)
        for field, moves in self.entity.moves.items():
            lawful = moves.get(row[field], ())
            if field in values and values[field] not in (row[field], *lawful):
                to = ", ".join(lawful) or "nothing"
                raise ApiError(409, f"'{field}' is {row[field]}, and can become {to} from there.")
        try:
            caller.state.update(self.table, id, values)
        except sqlite3.IntegrityError:
            raise self._clash() from None
        return self.shown(row | values)

    def delete(self, caller: Caller, given: Mapping[str, Any]) -> Row:
        id = given[f"{self.name}_id"]
        caller.own(self.table, id)
        for app, blueprint in caller.blueprints.items():
            for entity, field, target in blueprint.references:
                if target == self.table and caller.state.find(f"{app}.{entity}", **{field: id}):
                    raise ApiError(409, f"A {entity} refers to this {self.name}; delete it first.")
        caller.state.delete(self.table, id)
        return {"deleted": id}

    # ── what they say of themselves ──────────────────────────────────────────

    def _returns(self, way: Endpoint) -> dict[str, Any]:
        """Return the JSON schema of what an endpoint answers."""
        if way == "delete":
            return {"type": "object", "properties": {"deleted": WHOLE}}
        row = {"id": WHOLE}
        for field, column in self.entity.fields.items():
            schema = schema_of(column)
            if self._may_be_null(column):
                schema |= {"type": [schema["type"], "null"]}
                if column.choices:
                    schema["enum"] = [*column.choices, None]
            row[field] = schema
        if way not in ("list", "search"):
            return {"type": "object", "properties": self.shown(row)}
        rows = {"type": "array", "items": {"type": "object", "properties": self.brief(row)}}
        counts = {"page": WHOLE, "pages": WHOLE, "total": WHOLE}
        return {"type": "object", "properties": {f"{self.name}s": rows} | counts}

    def _may_be_null(self, column: Column) -> bool:
        """Return whether rows may lack a value: nothing sets it but a verb, if at all."""
        unset = column.by == "service" and column.default is None
        stamped = column.type in STAMPED
        return unset and not stamped and (bool(column.refers) or "create" in self.entity.endpoints)

    def _errors(self, way: Endpoint) -> dict[int, str]:
        """Return the statuses with which only this endpoint refuses."""
        entity, errors = self.entity, dict[int, str]()
        if way in ("show", "update", "delete"):
            errors[404] = f"you have no {self.name} with that id"
        if way in ("update", "delete") and entity.seen_by_others:
            errors[403] = f"the {self.name} is somebody else's"
        clash = ["it has what may occur only once"] if entity.unique else []
        conflicts = {
            "create": [*clash, *(["you have too many"] if entity.most else [])],
            "update": [*clash, *(["the change is not lawful"] if entity.moves else [])],
            "delete": ["something refers to it"],
        }
        if reasons := conflicts.get(way):
            errors[409] = " or ".join(reasons)
        return dict(sorted(errors.items()))

    # ── details ──────────────────────────────────────────────────────────────

    def shown(self, row: Row) -> Row:
        """Return a row as people see it: without documents, nor its owner, if they are that."""
        hidden = self._not_shown
        return {field: value for field, value in row.items() if field not in hidden}

    @cached_property
    def _not_shown(self) -> frozenset[str]:
        """Fields that no API shows."""
        return frozenset((*self.entity.documents, *(() if self.entity.public else self._implied)))

    @property
    def _implied(self) -> tuple[str, ...]:
        """The owner, where all rows that somebody sees are their own; staff sees those of all."""
        return () if self.blueprint.staff else (self.entity.owner,)

    @cached_property
    def _long(self) -> frozenset[str]:
        """Texts of any length."""
        fields = self.entity.fields.items()
        return frozenset(f for f, c in fields if c.type == "text" and c.most is None)

    def brief(self, row: Row) -> Row:
        """Return a row of a list: without texts of any length, which `show` has."""
        hidden = self._not_shown | self._long
        return {field: value for field, value in row.items() if field not in hidden}

    def _page(
        self, caller: Caller, given: Mapping[str, Any], condition: str, values: list[object]
    ) -> Any:
        page, size = given.get("page", 1), given.get("per_page", PAGE)
        if page < 1 or not 1 <= size <= LARGEST_PAGE:
            raise ApiError(422, f"Pages begin at 1 and have 1 to {LARGEST_PAGE} rows.")
        before = (page - 1) * size
        rows = caller.state.rows(self.table, condition, values, size, before)
        total = before + len(rows)
        if len(rows) == size or not rows:  # there may be more, or fewer before
            total = caller.state.count(self.table, condition, values)
        return {
            f"{self.name}s": [self.brief(row) for row in rows],
            "page": page,
            "pages": max(1, -(-total // size)),
            "total": total,
        }

    def _check(self, caller: Caller, values: Mapping[str, Any]) -> None:
        """Raise ApiError 422 for a value that its field refuses, or a row that is not there."""
        for field, value in values.items():
            column = self.entity.fields[field]
            if problem := refusal(column, value):
                raise ApiError(422, f"'{field}' {problem}.")
            if column.refers:
                target = qualified(self.blueprint.app, column.refers)
                condition, known = caller.readable(target)
                if not caller.state.count(target, f"id = ? AND {condition}", [value, *known]):
                    raise ApiError(
                        422, f"'{field}' is {value}, and no {column.refers} has that id."
                    )

    def _clash(self) -> ApiError:
        fields = " or ".join(" with ".join(names) for names in self.entity.unique)
        return ApiError(409, f"There is a {self.name} with the same {fields}.")


def _stamp(kind: str, caller: Caller) -> object:
    """Return what a service sets by itself: the time, the date, who calls, or nothing."""
    if kind == "email":
        return caller.email()
    return {"time": caller.now, "date": caller.now[:10]}.get(kind)


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
