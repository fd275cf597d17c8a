"""An environment with dead ends, in which the action with an immediate reward is wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.models.scripted.scripted_model import given_generation
from tests.core.small import renderer

LONG = 3  # `right` this many times solves the task


class Fork(Environment, capabilities={"state_key", "snapshot", "oracle", "admissible"}):
    """`right` advances; `left` earns 0.2 and leads into an alley that ends after two more steps."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.path = ""

    @property
    def instructions(self) -> str:
        return "Reply with one word: left, right."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.path = ""
        return Observation("a fork")

    def step(self, action: Action) -> Transition:
        if action.text not in ("left", "right"):
            return Transition(Observation("What?"), valid=False)
        astray = "l" in self.path  # an alley has one way, whatever the action
        self.path += "l" if astray else action.text[0]
        if "l" not in self.path:
            done = len(self.path) == LONG
            return Transition(Observation("a fork"), float(done), terminated=done, success=done)
        lost = self.path.count("l") == 3
        seen = Observation("a wall" if lost else "an alley")
        return Transition(seen, 0.0 if astray else 0.2, terminated=lost)

    def state_key(self) -> str:
        return self.path

    def snapshot(self) -> bytes:
        return sealed("fork/", "1", self.path.encode())

    def restore(self, snapshot: bytes) -> None:
        self.path = opened(snapshot, "fork/", "1").decode()

    def oracle(self) -> Sequence[Action]:
        return [] if "l" in self.path else [Action("right")] * (LONG - len(self.path))

    def admissible(self) -> Sequence[str]:
        return ["left", "right"]


class Wavering(Model):
    """Replies `left` as often as stated, else `right`."""

    name = "wavering"

    def __init__(self, left: float = 0.5, *, tokens: bool = False) -> None:
        self.left, self.renderer = left, renderer() if tokens else None

    async def generate(self, prompt: Prompt) -> Generation:
        left = random.Random(prompt.seed).random() < self.left
        return given_generation("left" if left else " right\n", prompt, self)


class Valuing(Model):
    """Values a conversation by the number of walls and alleys in it."""

    name = "valuing"

    async def generate(self, prompt: Prompt) -> Generation:
        text = prompt.messages[-1].text
        worth = 90 - 40 * text.count("alley") - 50 * text.count("wall")
        return given_generation(f"I would say {worth} of 100.", prompt, self)
