"""The lines of the stages `worlds` and `tasks`, and the worlds and tasks that they stand for."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import Blueprint
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.goal import Atom, Call, Goal, Slots, Steps
from palaestra.environments.families.apps.population import CACHED, START, world_template
from palaestra.environments.families.apps.stock import stock_app
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.linked_goals import linked_atoms
from palaestra.store.codec import JSON

SIZE = "small"  # of the worlds; see `populate`


@dataclass(frozen=True)
class Worded(Composition):
    """A task in words of its own."""

    words: str = ""

    @property
    def instruction(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Happened(Atom):
    """To do again what somebody did, call by call."""

    name: ClassVar[str] = "what happened"
    words: ClassVar[tuple[str, ...]] = ("{said}",)
    changing: frozenset[str]  # the APIs that change something

    @property
    def apps(self) -> frozenset[str]:
        return frozenset(api.partition(".")[0] for api in self.changing)

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        """Return None: such a goal is not drawn, but explored."""
        return None

    def steps(self, slots: Slots) -> Steps:
        for api, arguments in slots["calls"]:
            yield Call(api, arguments)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        calls = slots["calls"]
        return [
            {**slots, "calls": [*calls[:at], *calls[at + 1 :]]}
            for at, (api, _) in enumerate(calls)
            if api in self.changing
        ]


def happened(suite: Suite) -> Happened:
    """Return the kind of goal for some apps."""
    return Happened(frozenset(name for name, api in suite.apis.items() if api.changes))


def suite_of(world: Mapping[str, Any], user: bool = False) -> Suite:
    """Return the apps of a world's line, and the supervisor; the last ones are kept.

    Args:
        world: a line of the stage `worlds`.
        user: the person may be asked, too.
    """
    return _suite(json.dumps(world["apps"]), user)


@lru_cache(maxsize=CACHED)
def _suite(apps: str, user: bool) -> Suite:
    blueprints = [Blueprint.model_validate(app) for app in json.loads(apps)]
    known = ("supervisor", "user") if user else ("supervisor",)
    return Suite.of([*map(stock_app, known), *map(App, blueprints)])


def world_of(world: Mapping[str, Any], suite: Suite) -> World:
    """Return a world in which nothing has happened."""
    return World(suite, world_template(suite, SIZE, world["seed"]), START)


def written(task: Composition) -> list[JSON]:
    """Return the goals of a task as JSON."""
    return [
        {**_named(goal.atom), "slots": dict(goal.slots), "wording": goal.wording}
        for goal in task.goals
    ]


def task_of(line: Mapping[str, Any], suite: Suite) -> Worded:
    """Return the task of a line."""
    known = [*linked_atoms(suite), happened(suite)]
    atoms = {tuple(_named(atom).values()): atom for atom in known}
    goals = tuple(
        Goal(atoms[goal["atom"], goal["table"]], goal["slots"], goal["wording"])
        for goal in line["goals"]
    )
    return Worded(goals, words=line["instruction"])


def _named(atom: Atom) -> dict[str, str]:
    return {"atom": atom.name, "table": str(getattr(atom, "table", ""))}
