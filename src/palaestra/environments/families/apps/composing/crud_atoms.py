"""Goals over any entity: add, change, delete, count and look up rows.

They need nothing but a blueprint, so they exist for every app, also for those that nobody has seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import Column, Entity
from palaestra.environments.families.apps.composing.draws import another, value_for
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Call,
    Gap,
    Path,
    Slots,
    Steps,
    findable,
    mine,
)
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

NOT_FOUND = ("boolean", "choice", "person")  # types whose values are too few, or are no words


@dataclass(frozen=True, slots=True)
class EntityAtom(Atom):
    """A goal about the rows of one entity."""

    table: str  # `app.entity`
    entity: Entity

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({self.app})

    @property
    def app(self) -> str:
        return self.table.partition(".")[0]

    @property
    def noun(self) -> str:
        return self.table.partition(".")[2]

    @property
    def title(self) -> str:
        """The field by which words name a row."""
        return self.entity.search[0]

    def gap_kinds(self) -> frozenset[str]:
        arguments = self.entity.arguments().values()
        return frozenset(column.type for column in arguments if _can_be_found(column))

    def api(self, way: str, /, **arguments: Any) -> Call:
        plural = "s" if way in ("list", "search") else ""
        return Call(f"{self.app}.{way}_{self.noun}{plural}", arguments)

    def named(self, world: World) -> list[Row]:
        """Return the person's rows that a search for their title finds alone."""
        return findable(world, self.table, self.title)

    def find(self, slots: Slots) -> Steps:
        """Yield a search for the row that the slots name; return its id."""
        found = yield self.api("search", query=slots["title"])
        return found[f"{self.noun}s"][0]["id"]

    def _words(self, field: str) -> str:
        return field.removesuffix("_id").replace("_", " ")


@dataclass(frozen=True, slots=True)
class Add(EntityAtom):
    name: ClassVar[str] = "add"
    words: ClassVar[tuple[str, ...]] = (
        "Add a new {noun}: {listed}.",
        "Please create a {noun} with {listed}.",
        "I need a {noun} in {app}: {listed}.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        given: dict[str, Any] = {}
        for field, column in self.entity.arguments().items():
            if column.default is None or rng.random() < 0.5:
                given[field] = value_for(world, self.table, field, rng)
        if None in given.values():
            return None
        listed = ", ".join(f"{self._words(f)} {_quoted(v)}" for f, v in given.items())
        return {"given": given, "listed": listed, "noun": self.noun, "app": self.app}

    def steps(self, slots: Slots) -> Steps:
        yield self.api("create", **slots["given"])

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        fields = self.entity.fields
        return {
            ("given", field): Gap(fields[field].type, self._words(field))
            for field in slots["given"]
            if _can_be_found(fields[field])
        }

    def asked(self, slots: Slots, wording: int, path: Path, phrase: str) -> str:
        words = {field: self._words(field) for field in slots["given"]}
        listed = ", ".join(
            f"{words[field]} {_quoted(value)}"
            if field != path[-1]
            else phrase.removeprefix("the ")
            if phrase.startswith(f"the {words[field]}")
            else f"{words[field]} {phrase}"
            for field, value in slots["given"].items()
        )
        return self.words[wording].format(**{**slots, "listed": listed})

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [
            {**slots, "given": {**slots["given"], field: other}}
            for field, value in slots["given"].items()
            if (other := another(world, self.table, field, value, rng)) is not None
        ]


@dataclass(frozen=True, slots=True)
class Change(EntityAtom):
    name: ClassVar[str] = "change"
    words: ClassVar[tuple[str, ...]] = (
        "Set the {words} of the {noun} '{title}' to {value}.",
        "Change the {words} of my {noun} '{title}': it should be {value}.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        rows = self.named(world)
        changeable = [f for f, c in self.entity.arguments().items() if not c.fixed]
        if not rows or not changeable:
            return None
        row, field = rng.choice(rows), rng.choice(changeable)
        lawful = self.entity.moves.get(field)
        if lawful is not None:
            options = lawful.get(row[field], ())
            value: Any = rng.choice(options) if options else None
        else:
            value = another(world, self.table, field, row[field], rng)
        if value is None:
            return None
        return {
            "title": row[self.title],
            "field": field,
            "value": value,
            "words": self._words(field),
            "noun": self.noun,
        }

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.find(slots)
        yield self.api("update", **{f"{self.noun}_id": id, slots["field"]: slots["value"]})

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        column = self.entity.fields[slots["field"]]
        return {("value",): Gap(column.type, slots["words"])} if _can_be_found(column) else {}

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        misses: list[Slots] = []
        others = [r for r in self.named(world) if r[self.title] != slots["title"]]
        misses += [{**slots, "title": row[self.title]} for row in others[:2]]
        if slots["field"] not in self.entity.moves:
            other = another(world, self.table, slots["field"], slots["value"], rng)
            if other is not None:
                misses.append({**slots, "value": other})
        return misses


@dataclass(frozen=True, slots=True)
class Delete(EntityAtom):
    name: ClassVar[str] = "delete"
    words: ClassVar[tuple[str, ...]] = (
        "Delete the {noun} '{title}'.",
        "I no longer need the {noun} '{title}'. Remove it from {app}.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        referred = {
            row[field]
            for app, blueprint in world.suite.blueprints.items()
            for entity, field, target in blueprint.references
            if target == self.table
            for row in world.state.rows(f"{app}.{entity}")
        }
        rows = [row for row in self.named(world) if row["id"] not in referred]
        if not rows:
            return None
        return {"title": rng.choice(rows)[self.title], "noun": self.noun, "app": self.app}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.find(slots)
        yield self.api("delete", **{f"{self.noun}_id": id})

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [r for r in self.named(world) if r[self.title] != slots["title"]]
        return [{**slots, "title": row[self.title]} for row in others[:2]]


@dataclass(frozen=True, slots=True)
class Count(EntityAtom):
    name: ClassVar[str] = "count"
    answers: ClassVar[bool] = True
    words: ClassVar[tuple[str, ...]] = (
        "How many of my {noun}s have the {words} {shown}?",
        "Count the {noun}s in {app} whose {words} is {shown}.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        fields = [f for f, c in self.entity.fields.items() if c.type in ("choice", "boolean")]
        rows = mine(world, self.table)
        if not fields or not rows or self.entity.seen_by_others:  # others' rows count, too
            return None
        field = rng.choice(fields)
        value = rng.choice(rows)[field]
        words = {"words": self._words(field), "shown": _quoted(value)}
        return {"field": field, "value": value, "noun": self.noun, "app": self.app, **words}

    def steps(self, slots: Slots) -> Steps:
        found = yield self.api("list", **{slots["field"]: slots["value"]})
        return found["total"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        right = sum(row[slots["field"]] == slots["value"] for row in mine(world, self.table))
        column = self.entity.fields[slots["field"]]
        values = (True, False) if column.type == "boolean" else column.choices
        return [
            {**slots, "value": value}
            for value in values
            if sum(row[slots["field"]] == value for row in mine(world, self.table)) != right
        ]


@dataclass(frozen=True, slots=True)
class LookUp(EntityAtom):
    name: ClassVar[str] = "look up"
    answers: ClassVar[bool] = True
    words: ClassVar[tuple[str, ...]] = (
        "What is the {words} of the {noun} '{title}'?",
        "Tell me the {words} of my {noun} '{title}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        fields = [f for f in self.entity.fields if self._askable(f)]
        rows = self.named(world)
        if not fields or not rows:
            return None
        row, field = rng.choice(rows), rng.choice(fields)
        if row[field] in (None, ""):
            return None
        words = self._words(field)
        return {"title": row[self.title], "field": field, "words": words, "noun": self.noun}

    def _askable(self, field: str) -> bool:
        column: Column = self.entity.fields[field]
        long = column.type == "text" and column.most is None  # lists and searches leave it out
        plain = (
            column.type not in ("person", "boolean", "document") and not column.refers and not long
        )
        return plain and not column.free and field != self.title

    def steps(self, slots: Slots) -> Steps:
        found = yield self.api("search", query=slots["title"])
        return found[f"{self.noun}s"][0][slots["field"]]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        rows = self.named(world)
        (row,) = (row for row in rows if row[self.title] == slots["title"])
        others = [r for r in rows if r[slots["field"]] not in (row[slots["field"]], None, "")]
        return [{**slots, "title": other[self.title]} for other in others[:3]]


def crud_atoms(suite: Suite, ids: bool = True) -> Iterator[EntityAtom]:
    """Yield the goals that the entities of some apps allow.

    Args:
        suite: the apps.
        ids: whether words may name rows by their ids, where one refers to another. (They do in
            the tasks of `core`, which stay as they are.)
    """
    for app, blueprint in suite.blueprints.items():
        for name, entity in blueprint.entities.items():
            table, ways = f"{app}.{name}", set(entity.endpoints)
            if not entity.owner or not entity.search or "search" not in ways:
                continue
            refers = any(column.refers for column in entity.arguments().values())
            if "create" in ways and (ids or not refers):
                yield Add(table, entity)
            if "update" in ways:
                yield Change(table, entity if ids else _with_plain_values(entity))
            if "delete" in ways:
                yield Delete(table, entity)
            if "list" in ways:
                yield Count(table, entity)
            yield LookUp(table, entity)


def _can_be_found(column: Column) -> bool:
    """Return whether a value can stand somewhere else: no reference, nor one of few."""
    return not column.refers and not column.free and column.type not in NOT_FOUND


def _with_plain_values(entity: Entity) -> Entity:
    """Return an entity of which nobody changes a reference or a text of free wording."""
    fields = {
        name: column.model_copy(update={"fixed": True}) if column.refers or column.free else column
        for name, column in entity.fields.items()
    }
    return entity.model_copy(update={"fields": fields})


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()
