"""If-else on what is found: two goals are asked for, and a value in the world says which to do.

Near misses: the other goal, both goals, and the near misses of the right one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots, Steps
from palaestra.environments.families.apps.composing.sources import Source
from palaestra.environments.families.apps.composing.verifier import run, written
from palaestra.environments.families.apps.world import World

COMPARED = {
    "money": ("above", "below"),
    "integer": ("above", "below"),
    "date": ("after", "before"),
    "time": ("after", "before"),
}
"""How values of a type are compared with a bound; others are compared for being equal."""


def holds(value: Any, relation: str, bound: Any) -> bool:
    """Return whether a condition holds."""
    if relation in ("above", "after"):
        return bool(value > bound)
    if relation in ("below", "before"):
        return bool(value < bound)
    return bool(value == bound)


@dataclass(frozen=True, slots=True)
class Branch(Atom):
    """The slots hold the condition (`source`, `relation`, `bound`) and the goals (`yes`, `no`).

    `right`: which goal is the right one; `does`: which goals to do instead, in near misses.
    """

    source: Source
    yes: Atom
    no: Atom
    name: ClassVar[str] = "branch"
    words: ClassVar[tuple[str, ...]] = ("{text}",)

    @property
    def apps(self) -> frozenset[str]:
        return self.source.apps | self.yes.apps | self.no.apps

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        found = self.source.draw(world, rng)
        drawn = [atom.draw(world, rng) for atom in (self.yes, self.no)]
        if found is None or None in drawn:
            return None
        kind = self.source.kind(found)
        value = run(self.source.steps(found), world, MAIN).answer
        others = [
            run(self.source.steps(other), world, MAIN).answer
            for other in self.source.near_misses(found, world, rng)
        ]
        bounds = sorted({each for each in others if each not in (None, "", value)}, key=str)
        if value in (None, "") or not bounds:
            return None
        true = rng.random() < 0.5
        if kind in COMPARED:
            bound = rng.choice(bounds)
            relation = COMPARED[kind][(value > bound) != true]
            condition = f"{self.source.phrase(found)} is {relation} {written(bound)}"
        else:
            relation, bound = "equal", value if true else rng.choice(bounds)
            condition = f"{self.source.phrase(found)} is {written(bound)}"
        goals = [
            Goal(atom, slots, rng.randrange(len(atom.words)))
            for atom, slots in zip((self.yes, self.no), drawn, strict=True)
            if slots is not None
        ]
        text = (
            f"If {condition}, do this: {goals[0].instruction} "
            f"Otherwise, do this: {goals[1].instruction}"
        )
        made: dict[str, Any] = {"source": found, "relation": relation, "bound": bound}
        right = "yes" if true else "no"
        return {**made, "yes": goals[0], "no": goals[1], "right": right, "text": text}

    def steps(self, slots: Slots) -> Steps:
        if "does" in slots:
            chosen = slots["does"]
        else:
            value = yield from self.source.steps(slots["source"])
            chosen = ["yes" if holds(value, slots["relation"], slots["bound"]) else "no"]
        for one in chosen:
            yield from slots[one].atom.steps(slots[one].slots)

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        goal = slots[slots["right"]]
        return tuple(goal.atom.mentions(goal.slots))

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        right = slots["right"]
        goal = slots[right]
        wrong = "no" if right == "yes" else "yes"
        return [
            {**slots, "does": [wrong]},
            {**slots, "does": ["yes", "no"]},
            *(
                {**slots, right: replace(goal, slots=other)}
                for other in goal.atom.near_misses(goal.slots, world, rng)
            ),
        ]

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        goal = slots[slots["right"]]
        return [
            {**slots, slots["right"]: replace(goal, slots=other)}
            for other in goal.atom.alternatives(goal.slots, world)
        ]
