"""Tasks: goals in one world, drawn from a seed, that passed the gate.

Everything about a task follows from the suite, the level and its seed: the world, the goals, how
they are worded, what is wanted. A draw that does not pass the gate (`gate.py`) is thrown away, and
the next one is tried.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace

from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots, Steps
from palaestra.environments.families.apps.composing.policy import Clause
from palaestra.environments.families.apps.composing.verifier import Judge, Ran, Wanted, run
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.events import Event
from palaestra.environments.families.apps.state import State, Template
from palaestra.environments.families.apps.world import World

LEVELS = {"easy": 1, "medium": 2, "hard": 4}
"""Goals of a task, by level."""

JOIN = " Then: "


@dataclass(frozen=True)
class Composition:
    """A task in a world that nobody has touched."""

    goals: tuple[Goal, ...]
    noise: tuple[Event, ...] = ()  # what happens besides, and has to do with no goal

    @property
    def instruction(self) -> str:
        return JOIN.join(goal.instruction for goal in self.goals)

    @property
    def apps(self) -> frozenset[str]:
        return frozenset().union(*(goal.atom.apps for goal in self.goals))

    @property
    def mentions(self) -> tuple[str, ...]:
        return tuple(text for goal in self.goals for text in goal.atom.mentions(goal.slots))

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(one for goal in self.goals for one in goal.atom.windows(goal.slots))

    @property
    def policy(self) -> tuple[Clause, ...]:
        return tuple(one for goal in self.goals for one in goal.atom.policy(goal.slots))

    def events(self, world: World) -> tuple[Event, ...]:
        """Return what happens by itself in the task's world."""
        own = (event for goal in self.goals for event in goal.atom.events(goal.slots, world))
        return (*own, *self.noise)

    def planted(self, template: Template) -> Template:
        """Return a world with what the goals need there; the same one if it has all."""
        with closing(State(template)) as state:
            for goal in self.goals:
                goal.atom.plant(goal.slots, state)
            return state.template() if state.changes() else template

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
        fork = world.fork()
        try:
            ran = run(self.steps(), fork, MAIN)
            judge = Judge(world.state.columns, fork.state.event_rows())
            changes = fork.state.changes()
            wanted = judge.wanted(changes, ran, self.mentions, self.windows, self.policy)
            return ran, wanted
        finally:
            fork.close()

    def variants(self, world: World) -> list[Composition]:
        """Return the task with all combinations of its goals' alternatives, itself first."""
        choices = [
            [
                goal,
                *(
                    replace(goal, slots=slots)
                    for slots in goal.atom.alternatives(goal.slots, world)
                ),
            ]
            for goal in self.goals
        ]
        return [replace(self, goals=goals) for goals in itertools.product(*choices)]

    def ways(self, world: World) -> list[Wanted]:
        """Return what each right way leaves behind: the reference's first, then alternatives.

        An alternative that a service refuses is none.
        """
        found = [self.reference(world)[1]]
        for variant in self.variants(world)[1:]:
            ran, wanted = variant.reference(world)
            if not ran.refused:
                found.append(wanted)
        return found


class Composer:
    """Draws tasks of some kinds of goals."""

    def __init__(self, atoms: Iterable[Atom]) -> None:
        self.atoms = list(atoms)

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
