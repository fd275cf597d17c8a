"""For-each: something is done with every row that has a value, such as every colleague.

Near misses: a row left out, a row too many, the rows of another value, and another thing done.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import Column, Entity
from palaestra.environments.families.apps.compiler.endpoints import FILTERED
from palaestra.environments.families.apps.composing.draws import WORDS, another
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Call,
    Slots,
    Steps,
    call,
    mine,
)
from palaestra.environments.families.apps.composing.sources import all_rows
from palaestra.environments.families.apps.composing.stock_atoms import (
    AMOUNTS,
    address,
    named_contacts,
)
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

ROWS = (2, 8)  # for which something is done


@dataclass(frozen=True, slots=True)
class Each(Atom):
    """What is done with the rows of an entity.

    The slots say which rows (`field`, `value`) and what else is needed. In near misses,
    `without` is the number of a row that is left out, and `also` a row too many.
    """

    table: str
    entity: Entity
    words: ClassVar[tuple[str, ...]] = ("{text}",)

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({self.table.partition(".")[0]})

    @property
    def noun(self) -> str:
        return self.table.partition(".")[2]

    @abstractmethod
    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        """Draw what is needed besides the rows, with its words in `does`; None if nothing fits."""

    def begin(self, slots: Slots) -> Steps:
        """Yield calls that come first; return what `act` needs of them: usually none."""
        yield from ()

    @abstractmethod
    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        """Return the call for one row."""

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        rows = mine(world, self.table)
        groups: dict[tuple[str, Any], int] = {}
        for row in rows:
            for field, column in self.entity.fields.items():
                if self._selects(column) and row[field] not in (None, ""):
                    key = (field, row[field])
                    groups[key] = groups.get(key, 0) + 1
        fitting = [key for key, size in groups.items() if ROWS[0] <= size <= ROWS[1]]
        fitting = [key for key in fitting if groups[key] < len(rows)]
        if not fitting:
            return None
        # A field first: those of many different values have more groups than others.
        chosen = rng.choice(sorted({field for field, _ in fitting}))
        value = rng.choice([value for field, value in fitting if field == chosen])
        slots = {"field": chosen, "value": value}
        more = self.needs(slots, world, rng)
        if more is None:
            return None
        which = f"{chosen.removesuffix('_id').replace('_', ' ')} is {_shown(value)}"
        text = more["does"].format(each=f"every {self.noun} whose {which}")
        return {**slots, **more, "text": text[0].upper() + text[1:]}

    def steps(self, slots: Slots) -> Steps:
        app, noun, field = self.table.partition(".")[0], self.noun, slots["field"]
        filters = {field: slots["value"]} if self._filtered(self.entity.fields[field]) else {}
        rows = yield from all_rows(f"{app}.list_{noun}s", f"{noun}s", **filters)
        rows = [row for row in rows if row[field] == slots["value"]]
        if "without" in slots:
            del rows[slots["without"]]
        found = yield from self.begin(slots)
        # One too many comes first: a service that refuses it must not leave the right ones done.
        for row in [slots["also"], *rows] if "also" in slots else rows:
            yield self.act(row, slots, found)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        rows = mine(world, self.table)
        field, value = slots["field"], slots["value"]
        inside = [row for row in rows if row[field] == value]
        outside = [row for row in rows if row[field] != value]
        misses: list[Slots] = [{**slots, "without": at} for at in (0, len(inside) - 1)]
        misses += [{**slots, "also": row} for row in rng.sample(outside, min(2, len(outside)))]
        others = sorted({row[field] for row in outside if row[field] not in (None, "")}, key=str)
        misses += [{**slots, "value": other} for other in others[:2]]
        again = self.needs(slots, world, rng)
        if again is not None and again != {key: slots[key] for key in again}:
            misses.append({**slots, **again})
        return misses

    def _filtered(self, column: Column) -> bool:
        return column.type in FILTERED or bool(column.refers)

    def _selects(self, column: Column) -> bool:
        """Return whether words can name rows by a field: not by ids, nor by long or free texts."""
        if column.refers or column.free or column.type == "person":
            return False
        return column.type in FILTERED or (column.type == "text" and column.most is not None)


@dataclass(frozen=True, slots=True)
class DeleteEach(Each):
    name: ClassVar[str] = "delete each"

    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        return {"does": rng.choice(("delete {each}.", "remove {each}."))}

    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        app = self.table.partition(".")[0]
        return call(f"{app}.delete_{self.noun}", **{f"{self.noun}_id": row["id"]})

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        misses = Each.near_misses(self, slots, world, rng)
        return [miss for miss in misses if {**miss, "does": ""} != {**slots, "does": ""}]


@dataclass(frozen=True, slots=True)
class ChangeEach(Each):
    name: ClassVar[str] = "change each"

    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        unique = {field for fields in self.entity.unique for field in fields}
        changeable = [
            field
            for field, column in self.entity.arguments().items()
            if not (column.fixed or column.free or column.refers or field in unique)
            and field != self.entity.search[0]
        ]
        if not changeable:
            return None
        field = rng.choice(changeable)
        rows = [row for row in mine(world, self.table) if row[slots["field"]] == slots["value"]]
        if moves := self.entity.moves.get(field):
            reached = [set(moves.get(row[field], ())) for row in rows]
            options = sorted(set.intersection(*reached)) if reached else []
            value: Any = rng.choice(options) if options else None
        else:
            value = another(world, self.table, field, rows[0][field] if rows else None, rng)
        if value is None or any(row[field] == value for row in rows):
            return None
        words = field.removesuffix("_id").replace("_", " ")
        does = f"set the {words} of {{each}} to {_shown(value)}."
        return {"changed": field, "to": value, "does": does}

    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        app = self.table.partition(".")[0]
        given = {f"{self.noun}_id": row["id"], slots["changed"]: slots["to"]}
        return call(f"{app}.update_{self.noun}", **given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        """Leave out a row too many that has the value already: to set it again changes nothing."""
        misses = Each.near_misses(self, slots, world, rng)
        return [
            miss for miss in misses if miss.get("also", {}).get(slots["changed"]) != slots["to"]
        ]


@dataclass(frozen=True, slots=True)
class WriteEach(Each):
    """A mail to every contact of a kind."""

    name: ClassVar[str] = "write each"

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({"contacts", "mail"})

    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        word = " ".join(rng.sample(WORDS, 2))
        return {"word": word, "does": f"write a mail to {{each}}: the code word is '{word}'."}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        body = f"The code word is {slots['word']}."
        to = row["email"]
        return call("mail.send_message", recipient=to, subject="Code word", body=body)


@dataclass(frozen=True, slots=True)
class PayEach(Each):
    """Money for every contact of a kind."""

    name: ClassVar[str] = "pay each"

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({"contacts", "bank"})

    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        amount = rng.choice(AMOUNTS)
        return {"amount": amount, "does": f"send {written(amount)} to {{each}}."}

    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        return call("bank.send_money", payee=row["email"], amount=slots["amount"])


@dataclass(frozen=True, slots=True)
class InviteEach(Each):
    """An invitation of one contact to every event of a kind."""

    name: ClassVar[str] = "invite each"

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({"contacts", "calendar"})

    def needs(self, slots: Slots, world: World, rng: random.Random) -> Slots | None:
        invited = {
            (row["event_id"], row["email"])
            for row in world.state.find("calendar.invitation", owner=MAIN)
        }
        rows = [row for row in mine(world, self.table) if row[slots["field"]] == slots["value"]]
        names = [
            contact["name"]
            for contact in named_contacts(world)
            if not any((row["id"], contact["email"]) in invited for row in rows)
        ]
        if not names:
            return None
        name = rng.choice(names)
        return {"name": name, "does": f"invite {name} to {{each}}."}

    def begin(self, slots: Slots) -> Steps:
        return (yield from address(slots["name"]))

    def act(self, row: Row, slots: Slots, found: Any) -> Call:
        return call("calendar.invite", event_id=row["id"], email=found)


OF_STOCK: tuple[tuple[str, type[Each]], ...] = (
    ("contacts.contact", WriteEach),
    ("contacts.contact", PayEach),
    ("calendar.event", InviteEach),
)


def each_atoms(suite: Suite) -> Iterator[Each]:
    """Yield what can be done with every row of a kind in some apps."""
    for app, blueprint in suite.blueprints.items():
        for name, entity in blueprint.entities.items():
            ways = set(entity.endpoints)
            if not entity.owner or entity.readers or "list" not in ways:
                continue
            if "delete" in ways:
                yield DeleteEach(f"{app}.{name}", entity)
            if "update" in ways and entity.search:
                yield ChangeEach(f"{app}.{name}", entity)
    for table, kind in OF_STOCK:
        app, _, name = table.partition(".")
        if app in suite.apps:
            atom = kind(table, suite.blueprints[app].entities[name])
            if atom.apps <= suite.apps.keys():
                yield atom


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else written(value)
