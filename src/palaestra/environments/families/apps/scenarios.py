"""Scenarios: three tasks with the same goals, whose values, words and worlds differ.

Tasks 3k, 3k + 1 and 3k + 2 of a split are the variants of one scenario, after AppWorld (Trivedi et
al. 2024): who does one of them by luck seldom does all. Goals are operators (`operators.py`), and
are drawn for all variants at once, one after the other, such that none gets into another's way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split, TaskSet
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.each import Each
from palaestra.environments.families.apps.composing.gate import called, judged, rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal
from palaestra.environments.families.apps.composing.operators import (
    CALLS,
    EXPERT,
    OPERATORS,
    Structures,
)
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.drawing import (
    CHALLENGE,
    NEW,
    UNSEEN,
    WORLDS,
    Drawn,
    new_apps,
)
from palaestra.environments.families.apps.population import START, populate, world_template
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.stock import CORE, stock_app, stock_suite
from palaestra.environments.families.apps.world import World

VARIANTS = 3
ATTEMPTS = 60  # at a scenario; after some, in other worlds
PATIENCE = 4  # attempts in some worlds
CANDIDATES = 60  # goals tried in an attempt
VALUES = 6  # draws of a goal's values
SCENARIO = "scenario"  # the parameter of a task with the number of its scenario


@dataclass(frozen=True, slots=True)
class Scenarios(TaskSet):
    """The tasks of an environment whose tasks come in scenarios; each names its scenario."""

    variants: int = VARIANTS  # of a scenario

    def _parameters(self, split: Split, index: int) -> Mapping[str, Any]:
        return {**self.parameters, SCENARIO: index // self.variants}


def variant(level: str, kind: str, seed: int) -> Drawn:
    """Return the task of a seed.

    Args:
        level: one of the operators, or `EXPERT`.
        kind: empty, or one of the suffixes.
        seed: says which split it belongs to, as those of a `TaskSet` do.
    """
    number, split = divmod(seed, len(Split))
    return scenario(level, kind, number // VARIANTS, split)[number % VARIANTS]


@lru_cache(maxsize=64)
def scenario(level: str, kind: str, number: int, split: int) -> tuple[Drawn, ...]:
    """Draw the tasks of a scenario."""
    seeds = [len(Split) * (VARIANTS * number + each) + split for each in range(VARIANTS)]
    suite = suite_of(kind, seeds[0])
    structures = structures_of(suite, kind)
    rng = random.Random(f"scenario {level} {kind} {seeds[0]}")
    for attempt in range(ATTEMPTS):
        moved = len(Split) * (attempt // PATIENCE)
        tasks = [
            _Task(suite, template_of(suite, kind, seed + moved), random.Random(f"{seed} {attempt}"))
            for seed in seeds
        ]
        if _composed(level, structures, tasks, rng):
            found = list(takewhile(bool, (task.drawn() for task in tasks)))
            if len(found) == VARIANTS:
                return tuple(one for one in found if one is not None)
    raise EnvironmentFault("reset", f"no scenario of '{level}' passed the gate for {seeds[0]}")


def candidates(level: str, kind: str, seed: int, number: int) -> Iterator[str | None]:
    """Yield why tasks of one drawn goal do not pass the gate; None for one that passes."""
    suite = suite_of(kind, seed)
    structures, rng = structures_of(suite, kind), random.Random(f"candidates {level} {seed}")
    template = template_of(suite, kind, seed)
    for _ in range(number):
        atom = structures.draw(level, rng)
        with closing(World(suite, template, START)) as world:
            slots = atom.draw(world, rng)
        if slots is None:
            yield "no values"
            continue
        task = Composition((Goal(atom, slots),))
        with closing(World(suite, task.planted(template), START)) as world:
            yield rejection(world, task, rng)


def _composed(
    level: str, structures: Structures, tasks: Sequence[_Task], rng: random.Random
) -> bool:
    """Give all variants the same goals; return whether enough were found that fit each of them."""
    kinds = [level] if level != EXPERT else rng.sample(OPERATORS, len(OPERATORS))
    for _ in range(CANDIDATES):
        if not kinds:
            if level != EXPERT or all(task.calls >= CALLS for task in tasks):
                return True
            kinds = [rng.choice(OPERATORS)]
        atom = structures.draw(kinds[0], rng)
        if any(_same_rows(atom, goal.atom) for goal in tasks[0].goals):
            continue
        longer: list[tuple[Goal, ...]] = []
        for task in tasks:
            if (goals := task.with_goal(atom)) is None:
                break
            longer.append(goals)
        else:
            for task, goals in zip(tasks, longer, strict=True):
                task.goals = goals
            del kinds[0]
    return False


def _same_rows(one: Atom, other: Atom) -> bool:
    """Return whether two goals change many rows of one table, so that one may undo the other."""
    return isinstance(one, Each) and isinstance(other, Each) and one.table == other.table


@dataclass(slots=True)
class _Task:
    """A task of a scenario while its goals are drawn."""

    suite: Suite
    template: Template
    rng: random.Random
    goals: tuple[Goal, ...] = ()

    @property
    def calls(self) -> int:
        """The calls of the reference."""
        task = Composition(self.goals)
        with closing(World(self.suite, task.planted(self.template), START)) as world:
            return len(task.reference(world)[0].calls)

    def with_goal(self, atom: Atom) -> tuple[Goal, ...] | None:
        """Return the goals and one more, with values that fit the others; None if none do."""
        with closing(World(self.suite, self.template, START)) as world:
            for _ in range(VALUES):
                slots = atom.draw(world, self.rng)
                if slots is None:
                    continue
                goal = Goal(atom, slots, self.rng.randrange(len(atom.words)))
                goals = (*self.goals, goal)
                if self._passes(Composition((goal,))) and self._independent(Composition(goals)):
                    return goals
        return None

    def _passes(self, task: Composition) -> bool:
        """Return whether a goal alone passes the gate, as part of a task of several."""
        with closing(World(self.suite, task.planted(self.template), START)) as world:
            return rejection(world, task, self.rng) is None

    def drawn(self) -> Drawn | None:
        """Return the task if it passes the gate."""
        task = Composition(self.goals)
        planted = task.planted(self.template)
        with closing(World(self.suite, planted, START)) as world:
            if rejection(world, task, self.rng) is not None:
                return None
            ways, needed = task.ways(world), dict.fromkeys(called(world, task, self.rng))
            return Drawn(self.suite, planted, task, ways, tuple(needed))

    def _independent(self, task: Composition) -> bool:
        """Return whether the goals can be reached in their order, and mean the same in another."""
        planted = task.planted(self.template)
        with (
            closing(World(self.suite, planted, START)) as world,
            closing(World(self.suite, planted, START)) as other,
        ):
            ran, wanted = task.reference(world)
            if ran.refused or len(task.goals) == 1:
                return not ran.refused
            backwards = run(Composition(task.goals[::-1]).steps(), other, MAIN)
            return not backwards.refused and judged(other, [wanted], "").success


def suite_of(kind: str, seed: int) -> Suite:
    """Return the apps of a scenario."""
    if kind != NEW:
        return stock_suite((*CORE, "user"))
    known = [stock_app(name) for name in ("contacts", "mail", "supervisor", "user")]
    return Suite.of([*known, *new_apps(seed)])


def template_of(suite: Suite, kind: str, seed: int) -> Template:
    """Return a world of the split to which a seed belongs."""
    if kind == NEW:
        return populate(suite, "small", seed)
    number, split = divmod(seed, len(Split))
    return world_template(suite, "small", len(Split) * (number % WORLDS) + split)


def structures_of(suite: Suite, kind: str) -> Structures:
    """Return what a scenario can be made of: see `drawing.py` for what each kind is about."""
    if kind == NEW:
        known = set(stock_suite((*CORE, "user")).apps)
        return Structures(suite, lambda apps: bool(apps - known), lambda apps: True)
    if kind == CHALLENGE:
        return Structures(suite, lambda apps: UNSEEN in apps, lambda apps: True)
    return Structures(suite, lambda apps: UNSEEN not in apps, lambda apps: UNSEEN not in apps)
