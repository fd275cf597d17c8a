"""Tasks: goals in one world, drawn from a seed, that passed the gate.

Everything about a task follows from the suite, the level and its seed: the world, the goals, how
they are worded, what is wanted. A draw that does not pass the gate (`gate.py`) is thrown away, and
the next one is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots, Steps
from palaestra.environments.families.apps.composing.stock_atoms import stock_atoms
from palaestra.environments.families.apps.composing.verifier import Judge, Ran, Wanted, run
from palaestra.environments.families.apps.world import World

LEVELS = {"easy": 1, "medium": 2, "hard": 4}
"""Goals of a task, by level."""

JOIN = " Then: "


@dataclass(frozen=True)
class Composition:
    """A task in a world that nobody has touched."""

    goals: tuple[Goal, ...]

    @property
    def instruction(self) -> str:
        return JOIN.join(goal.instruction for goal in self.goals)

    @property
    def apps(self) -> frozenset[str]:
        return frozenset().union(*(goal.atom.apps for goal in self.goals))

    @property
    def mentions(self) -> tuple[str, ...]:
        return tuple(text for goal in self.goals for text in goal.atom.mentions(goal.slots))

    def steps(self, changed: int = -1, slots: Slots | None = None) -> Steps:
        """Yield the calls of the reference, goal by goal; return the last goal's answer, if any.

        Args:
            changed: the number of a goal that takes other slots.
            slots: those other slots.
        """
        answer = None
        for number, goal in enumerate(self.goals):
            taken = slots if number == changed and slots is not None else goal.slots
            found = yield from goal.atom.steps(taken)
            answer = found if found is not None else answer
        return answer

    def reference(self, world: World) -> tuple[Ran, Wanted]:
        """Run the reference on a fork; return what it did and what it shows to be wanted."""
        return self._tried(world, self.steps(), self.mentions)

    def ways(self, world: World) -> list[Wanted]:
        """Return what each right way leaves behind: the reference's first, then alternatives."""
        found = [self.reference(world)[1]]
        for number, goal in enumerate(self.goals):
            for slots in goal.atom.alternatives(goal.slots, world):
                found.append(self._tried(world, self.steps(number, slots), self.mentions)[1])
        return found

    def _tried(self, world: World, steps: Steps, mentions: Sequence[str]) -> tuple[Ran, Wanted]:
        fork = world.fork()
        try:
            ran = run(steps, fork, MAIN)
            judge = Judge(world.suite.blueprints)
            return ran, judge.wanted(fork.state.changes(), ran, mentions)
        finally:
            fork.close()


class Composer:
    """Draws tasks for a suite of apps."""

    def __init__(self, suite: Suite, allowed: Callable[[frozenset[str]], bool]) -> None:
        """Use the atoms whose apps are `allowed`."""
        self.atoms: list[Atom] = [
            atom for atom in (*stock_atoms(suite), *crud_atoms(suite)) if allowed(atom.apps)
        ]

    def draw(self, world: World, goals: int, rng: random.Random) -> Composition | None:
        """Draw a task; None if this draw gave none, or its goals get into each other's way.

        Kinds are drawn first and then an atom of that kind, so that apps with many entities do not
        crowd out the others. At most one goal asks for an answer.
        """
        kinds: dict[str, list[Atom]] = {}
        for atom in self.atoms:
            kinds.setdefault(atom.name, []).append(atom)
        chosen: list[Goal] = []
        for _ in range(goals):
            atom = rng.choice(kinds[rng.choice(sorted(kinds))])
            slots = atom.draw(world, rng)
            if slots is None or (atom.answers and any(goal.atom.answers for goal in chosen)):
                return None
            chosen.append(Goal(atom, slots, rng.randrange(len(atom.words))))
        return Composition(tuple(chosen))
