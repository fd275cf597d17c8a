"""Rows for apps that nothing is known of but their blueprints."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import Column, Entity, qualified
from palaestra.environments.families.apps.names import ADJECTIVES, NOUNS
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.world import TIME

OWNED = (3, 8)  # rows of an entity that each person has
SHARED = (8, 16)  # rows of an entity that belongs to everybody
TRIES = 20  # at a row that clashes with none of its owner's
DEFAULTS = 0.3  # of the fields with a default have it


def fill(
    state: State,
    suite: Suite,
    apps: Sequence[str],
    people: Sequence[Person],
    start: datetime,
    rng: random.Random,
) -> None:
    """Insert rows of all entities of some apps, drawn by the types of their fields.

    References lead to rows of the same owner, or to those of an entity without an owner. A row that
    needs one where its owner has none is left out.
    """
    tables = [f"{app}.{entity}" for app in apps for entity in suite.blueprints[app].entities]
    filler = _Filler(state, suite, people, start, rng, waiting=set(tables))
    for table in tables:
        filler.fill(table)


@dataclass(frozen=True, slots=True)
class _Filler:
    state: State
    suite: Suite
    people: Sequence[Person]
    start: datetime
    rng: random.Random
    waiting: set[str] = field(default_factory=set)  # tables that are still empty

    def fill(self, table: str) -> None:
        """Fill a table, after those that it refers to; in a circle of them, some refer to none."""
        if table not in self.waiting:
            return
        self.waiting.remove(table)
        app, _, name = table.partition(".")
        entity = self.suite.blueprints[app].entities[name]
        for column in entity.fields.values():
            if column.refers:
                self.fill(qualified(app, column.refers))
        owners = self.people if entity.owner else [self.rng.choice(self.people)]
        for person in owners:
            number = self.rng.randint(*(OWNED if entity.owner else SHARED))
            for _ in range(min(number, entity.most or number)):
                self._insert(table, entity, person)

    def _insert(self, table: str, entity: Entity, person: Person) -> None:
        for _ in range(TRIES):
            row = {name: self._value(table, entity, name, person) for name in entity.fields}
            if not self._complete(table, entity, row):
                return
            try:
                self.state.insert(table, row)
                return
            except sqlite3.IntegrityError:
                continue  # it clashes with a row of the same owner

    def _complete(self, table: str, entity: Entity, row: Row) -> bool:
        """Return whether each reference that a person must give is given, or cannot be."""
        for name, column in entity.fields.items():
            if column.refers and row[name] is None and column.by == "person":
                target = qualified(table.partition(".")[0], column.refers)
                if target != table and self.state.count(target):
                    return False
        return True

    def _value(self, table: str, entity: Entity, name: str, person: Person) -> Any:
        column, rng = entity.fields[name], self.rng
        if name == entity.owner:
            return person.id
        if column.refers:
            target = qualified(table.partition(".")[0], column.refers)
            return self._reference(target, person if entity.owner else None)
        if column.default is not None and rng.random() < DEFAULTS:
            return column.default
        other = self.people[rng.choice(list(person.circle) or [person.id]) - 1]
        match column.type:
            case "choice":
                return rng.choice(column.choices)
            case "boolean":
                return rng.random() < 0.5
            case "person":
                return other.id
            case "email":
                return other.email
            case "phone":
                return other.phone
            case "integer":
                return rng.randint(*_whole(column, 100))
            case "money":
                low, high = _whole(column, 200, per=100)
                return rng.randint(low, high) / 100
            case "time" | "date":
                days = rng.randint(-30, -1) if column.by == "service" else rng.randint(-14, 28)
                at = self.start + timedelta(days=days, minutes=15 * rng.randint(-8, 40))
                return at.strftime(TIME if column.type == "time" else "%Y-%m-%d")
            case "text":
                return _text(rng, column)

    def _reference(self, target: str, owner: Person | None) -> int | None:
        """Return the id of a row of that owner, or of any where there is no owner."""
        app, _, name = target.partition(".")
        field = self.suite.blueprints[app].entities[name].owner
        equal = {field: owner.id} if field and owner else {}
        found = self.state.find(target, **equal) if equal else self.state.rows(target)
        return int(self.rng.choice(found)["id"]) if found else None


def _whole(column: Column, span: int, per: int = 1) -> tuple[int, int]:
    """Return the smallest and the largest number of parts, `per` to a unit, that a field takes."""
    least, most = column.least, column.most
    if least is None:
        least = 1.0 if most is None or most >= 1 else most - span
    if most is None:
        most = least + span
    return math.ceil(least * per), math.floor(most * per)


def _text(rng: random.Random, column: Column) -> str:
    """Return two words, or a few more for a text of free wording, within the field's lengths."""
    words = [rng.choice(ADJECTIVES), rng.choice(NOUNS)]
    if column.free:
        words += ["and", rng.choice(ADJECTIVES), rng.choice(NOUNS)]
    while len(" ".join(words)) < (column.least or 0):
        words.append(rng.choice(NOUNS))
    text = " ".join(words)
    return text if column.most is None else text[: int(column.most)]
