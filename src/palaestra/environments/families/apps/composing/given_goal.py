"""A goal that was drawn, as a kind of goal that draws nothing else: operators take it as it is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from palaestra.environments.families.apps.composing.gaps import value_at
from palaestra.environments.families.apps.composing.goal import (
    ANY,
    Atom,
    Gap,
    Goal,
    Path,
    Slots,
    Steps,
)
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.world import World


@dataclass(frozen=True, slots=True)
class GivenGoal(Atom):
    """A goal with one gap, the value of which its words say."""

    goal: Goal
    path: Path  # of the gap
    gap: Gap
    name: ClassVar[str] = "goal"
    words: ClassVar[tuple[str, ...]] = ("{text}",)

    @property
    def apps(self) -> frozenset[str]:
        return self.goal.atom.apps

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        value = value_at(self.goal.slots, self.path)
        phrase = f"'{value}'" if isinstance(value, str) else written(value)
        if self.gap.kind == ANY:
            phrase = f"this: '{written(value)}'"
        return {**self.goal.slots, "text": self.asked(self.goal.slots, 0, self.path, phrase)}

    def steps(self, slots: Slots) -> Steps:
        return (yield from self.goal.atom.steps(slots))

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return self.goal.atom.near_misses(slots, world, rng)

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        return self.goal.atom.alternatives(slots, world)

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return self.goal.atom.mentions(slots)

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return {self.path: self.gap}

    def asked(self, slots: Slots, wording: int, path: Path, phrase: str) -> str:
        return self.goal.atom.asked(slots, self.goal.wording, path, phrase)
