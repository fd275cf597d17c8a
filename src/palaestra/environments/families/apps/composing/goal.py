"""Goals: what a task asks for, and the calls that reach it.

An atom is a kind of goal. It draws slots from a world, such as a payee and an amount, has words for
them, and a reference: a generator that yields calls, is sent what each of them answered, and
returns the answer of the task, if there is one. So a reference can use the ids that it finds.

    class Pay(Atom):
        name = "pay"
        words = ("Send {amount} to {payee}.",)

        def draw(self, world, rng): ...
        def steps(self, slots):
            yield call("bank.send_money", payee=slots["payee"], amount=slots["amount"])
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.composing.policy import Clause
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.events import Event
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.world import World

Slots = Mapping[str, Any]
MAIN = 1  # the id of the person for whom an agent acts


class Call(NamedTuple):
    """A call of an API, `app.name`."""

    api: str
    arguments: Mapping[str, Any]


Steps = Generator[Call, Any, Any]
Path = tuple[str, ...]
"""Keys that lead to a value in slots."""


class Gap(NamedTuple):
    """A value of a goal that can be left out, to be found by whoever does it."""

    kind: str  # a type of fields, such as "money"; `ANY`: whatever has words
    label: str  # what the person calls it, such as "amount"


ANY = "any"


def call(api: str, /, **arguments: Any) -> Call:
    """Return a call."""
    return Call(api, arguments)


class Atom(ABC):
    """A kind of goal."""

    name: ClassVar[str]
    words: ClassVar[tuple[str, ...]]  # ways to ask for it, with slots in braces
    answers: ClassVar[bool] = False  # whether it asks for an answer

    @property
    @abstractmethod
    def apps(self) -> frozenset[str]:
        """The apps that it needs."""

    @abstractmethod
    def draw(self, world: World, rng: random.Random) -> Slots | None:
        """Draw a goal of this kind in a world; None if the world has none.

        Slots are JSON; those of operators (`operators.py`) hold goals as well.
        """

    @abstractmethod
    def steps(self, slots: Slots) -> Steps:
        """Yield the calls of the reference; return the answer, or None."""

    @abstractmethod
    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        """Return slots whose reference does something else, and which must not be accepted."""

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        """Return other slots whose reference is as right, where the words leave it open."""
        return ()

    def events(self, slots: Slots, world: World) -> Sequence[Event]:
        """Return what happens by itself in a task with this goal."""
        return ()

    def windows(self, slots: Slots) -> Sequence[Window]:
        """Return when the changes for this goal must be made."""
        return ()

    def policy(self, slots: Slots) -> Sequence[Clause]:
        """Return the rules that the person has set for a task with this goal."""
        return ()

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        """Return what texts of free wording must mention, in any case of letters."""
        return ()

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        """Return the values that the words can leave out; see `composing/gaps.py`."""
        return {}

    def gap_kinds(self) -> frozenset[str]:
        """Return the types of all gaps that goals of this kind may have."""
        return frozenset(gap.kind for gap in self.gaps({}).values())

    def asked(self, slots: Slots, wording: int, path: Path, phrase: str) -> str:
        """Return the words of a goal with a phrase in the place of a value."""
        words = self.words[wording].replace(f"'{{{path[-1]}}}'", f"{{{path[-1]}}}")
        return words.format(**{**slots, path[-1]: phrase})

    def plant(self, slots: Slots, state: State) -> None:
        """Write what a goal needs there into a world that is not open yet."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal that was drawn."""

    atom: Atom
    slots: Slots
    wording: int = 0  # the number of its way to ask

    @property
    def instruction(self) -> str:
        return self.atom.words[self.wording].format(**self.slots)


def mine(world: World, table: str) -> list[Row]:
    """Return the rows of the person for whom the agent acts."""
    app, _, name = table.partition(".")
    return world.state.find(table, **{world.suite.blueprints[app].entities[name].owner: MAIN})


def readable(world: World, table: str) -> list[Row]:
    """Return the rows that the person for whom the agent acts may read."""
    condition, values = _person(world).readable(table)
    return world.state.rows(table, condition, values)


def findable(world: World, table: str, field: str, rows: Sequence[Row] | None = None) -> list[Row]:
    """Return the rows that a search for their value of a field finds, and nothing else.

    Args:
        world: it is only read.
        table: `app.entity`.
        field: one of those that are searched.
        rows: among which; those of the person, unless given.
    """
    app, _, name = table.partition(".")
    search = world.suite.apis[f"{app}.search_{name}s"]
    caller = _person(world)

    def hits(text: str) -> int:
        return int(search.run(caller, {"query": text, "per_page": 1})["total"])

    among = mine(world, table) if rows is None else rows
    return [row for row in among if str(row[field]).strip() and hits(str(row[field])) == 1]


def first(api: str, /, **arguments: Any) -> Steps:
    """Yield a call that lists or searches rows; return the first of them."""
    found = yield Call(api, arguments)
    (rows,) = [value for value in found.values() if isinstance(value, list)]
    return rows[0]


def pick(rows: Iterable[Row], **equal: object) -> Row:
    """Return the first row with these values; raises IndexError, at which a reference stops."""
    found = [row for row in rows if all(row[name] == value for name, value in equal.items())]
    return found[0]


def swapped(slots: Slots, **others: Iterable[Any]) -> list[Slots]:
    """Return the slots with one of them replaced, by at most two other values of each."""
    return [
        {**slots, name: value}
        for name, values in others.items()
        for value in itertools.islice((v for v in values if v != slots[name]), 2)
    ]


def _person(world: World) -> Caller:
    return Caller(world.state, world.suite.blueprints, MAIN, world.now)
