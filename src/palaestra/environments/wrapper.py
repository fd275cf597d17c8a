"""A wrapper: an environment around another one, which keeps all its capabilities honest."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.environments.snapshots import opened, sealed

VERSION = "1"


class Wrapper(Environment):
    """An environment around another one; by itself it changes nothing."""

    keyed: ClassVar[bool] = False
    """Whether what happens next depends on how many actions there were."""

    def __init__(self, inner: Environment) -> None:
        self.inner = inner
        self.name = inner.name
        self.players = inner.players
        self.free_text = inner.free_text  # type: ignore[misc]
        self.deterministic = inner.deterministic  # type: ignore[misc]
        self.capabilities = inner.capabilities  # type: ignore[misc]
        self.seed = self.turn = 0

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return self.inner.tools

    @property
    def context(self) -> Mapping[str, float]:  # type: ignore[override]
        return self.inner.context

    def set_context(self, values: Mapping[str, float]) -> None:
        self.inner.set_context(values)

    @property
    def instructions(self) -> str:
        return self.inner.instructions

    @property
    def typical_turns(self) -> int:
        return self.inner.typical_turns

    @property
    def names_actions(self) -> bool:
        return self.inner.names_actions

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        raise InputError(f"'{environment}' is wrapped; its tasks are those of what is inside.")

    def reset(self, task: Task) -> Observation:
        self.seed, self.turn = task.seed, 0
        return self.begun(self.inner.reset(task))

    def step(self, action: Action) -> Transition:
        transition = self.inner.step(action)
        return self.changed(transition) if transition.valid else transition

    def begun(self, observation: Observation) -> Observation:
        """What is made of an episode's first observation."""
        return observation

    def changed(self, transition: Transition) -> Transition:
        """What is made of an action that was understood."""
        self.turn += 1
        return transition

    def close(self) -> None:
        self.inner.close()

    def picture(self) -> bytes:
        return self.inner.picture()

    def turn_of(self) -> str:
        return self.inner.turn_of()

    def state_key(self) -> str:
        key = self.inner.state_key()
        return f"{key}/{self.turn}" if self.keyed else key

    def snapshot(self) -> bytes:
        head = json.dumps([self.seed, self.turn, self.memory()]).encode()
        return sealed(self._id, VERSION, head + b"\n" + self.inner.snapshot())

    def restore(self, snapshot: bytes) -> None:
        head, _, inner = opened(snapshot, self._id, VERSION).partition(b"\n")
        seed, turn, memory = json.loads(head)
        self.prepare(memory)
        self.inner.restore(inner)
        self.seed, self.turn = seed, turn
        self.remember(memory)

    def memory(self) -> Any:
        """What the wrapper itself must remember of the episode, as JSON."""
        return None

    def prepare(self, memory: Any) -> None:
        """What must be done before the world inside is restored."""

    def remember(self, memory: Any) -> None:
        """Take `memory` up again."""

    def progress(self) -> float:
        return self.inner.progress()

    def oracle(self) -> Sequence[Action]:
        return self.inner.oracle()

    def admissible(self) -> Sequence[str]:
        return self.inner.admissible()

    def sample_action(self, dice: random.Random) -> Action:
        return self.inner.sample_action(dice)

    @property
    def _id(self) -> str:
        return f"{type(self).__name__}/{self.name}".replace(" ", "_")

    def _happens(self, what: str, share: float, turn: int) -> bool:
        return random.Random(f"{what} {self.seed} {turn}").random() < share


class Ending(Wrapper):
    """A wrapper that ends episodes, or must know that they have ended."""

    keyed = True

    def __init__(self, inner: Environment) -> None:
        super().__init__(inner)
        self.over = False

    def begun(self, observation: Observation) -> Observation:
        self.over = False
        return observation

    def step(self, action: Action) -> Transition:
        if self.over:
            return Transition(Observation("It is over."), valid=False)
        return super().step(action)

    def memory(self) -> bool:
        return self.over

    def remember(self, memory: bool) -> None:
        self.over = memory


class Limited(Ending):
    """At most so many actions."""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        self.limit = int(choice)

    @property
    def typical_turns(self) -> int:
        return min(self.limit, self.inner.typical_turns)

    def oracle(self) -> Sequence[Action]:
        """Nothing where the way is longer than what is left."""
        way = list(self.inner.oracle())
        return way if len(way) <= self.limit - self.turn else []
