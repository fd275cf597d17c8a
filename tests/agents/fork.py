"""A road with blind alleys, in which the action that pays at once is the wrong one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.models.scripted import certain
from tests.core.small import renderer

LONG = 3  # so many times right solves the task


class Fork(Environment):
    """`right` goes on; `left` earns 0.2 and leads into an alley that ends after two more steps."""

    capabilities = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.ORACLE, Capability.ADMISSIBLE}
    )

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.way = ""

    @property
    def instructions(self) -> str:
        return "Reply with one word: left, right."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.way = ""
        return Observation("a fork")

    def step(self, action: Action) -> Transition:
        if action.text not in ("left", "right"):
            return Transition(Observation("What?"), valid=False)
        astray = "l" in self.way  # there is one way in an alley, whatever is said
        self.way += "l" if astray else action.text[0]
        if "l" not in self.way:
            done = len(self.way) == LONG
            return Transition(Observation("a fork"), float(done), terminated=done, success=done)
        lost = self.way.count("l") == 3
        seen = Observation("a wall" if lost else "an alley")
        return Transition(seen, 0.0 if astray else 0.2, terminated=lost)

    def state_key(self) -> str:
        return self.way

    def snapshot(self) -> bytes:
        return sealed("fork/", "1", self.way.encode())

    def restore(self, snapshot: bytes) -> None:
        self.way = opened(snapshot, "fork/", "1").decode()

    def oracle(self) -> Sequence[Action]:
        return [] if "l" in self.way else [Action("right")] * (LONG - len(self.way))

    def admissible(self) -> Sequence[str]:
        return ["left", "right"]


class Wavering(Model):
    """Says `left` as often as stated, else `right`."""

    name = "wavering"

    def __init__(self, left: float = 0.5, *, tokens: bool = False) -> None:
        self.left, self.renderer = left, renderer() if tokens else None

    async def generate(self, prompt: Prompt) -> Generation:
        left = random.Random(prompt.seed).random() < self.left
        return certain("left" if left else " right\n", prompt, self)


class Valuing(Model):
    """Values what it is told by the number of walls and alleys in it."""

    name = "valuing"

    async def generate(self, prompt: Prompt) -> Generation:
        text = prompt.messages[-1].content
        worth = 90 - 40 * text.count("alley") - 50 * text.count("wall")
        return certain(f"I would say {worth} of 100.", prompt, self)
