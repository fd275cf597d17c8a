"""The base of wrappers: an environment around another one, with all its capabilities."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from palaestra.core.element import Element
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import (
    acting_in,
    answer_of,
    caption_of,
    elements_of,
    observed_by,
    picture_of,
    privileged_of,
    sample_action,
)
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.environments.snapshots import opened, sealed

VERSION = "1"


def require_one_player(spec: Spec, knob: str) -> None:
    """Raise InputError if an environment has several players, who would see or pay for others."""
    if len(spec.players) > 1:
        raise InputError(
            f"{knob} is for a single player, and '{spec.name or spec.id}' has several; "
            "leave it out."
        )


def require_capability(spec: Spec, capability: Capability, knob: str) -> None:
    """Raise InputError if an environment does not declare what a knob needs."""
    if capability not in spec.capabilities:
        raise InputError(
            f"{knob} needs '{capability}', which '{spec.name or spec.id}' does not declare; "
            "leave the knob out."
        )


class Wrapper(Environment):
    """An environment around another one; by itself it changes nothing."""

    keyed: ClassVar[bool] = False
    """Whether the future depends on the number of actions so far."""

    def __init__(self, inner: Environment, value: str = "", spec: Spec | None = None) -> None:
        """Wrap it; `spec` is what `adapt_spec` returns for it, if that is known already."""
        self.inner = inner
        self.spec = self.adapt_spec(inner.spec, value) if spec is None else spec
        self.seed = self.turn = 0

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        """Return the spec of an environment with this wrapper around it.

        Raises:
            InputError: the environment lacks what the wrapper needs.
        """
        return spec

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return self.inner.tools

    @property
    def instructions(self) -> str:
        return self.inner.instructions

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        raise InputError(
            f"'{environment}' is a wrapper, which has no tasks; "
            "take the tasks of the wrapped environment."
        )

    def reset(self, task: Task) -> Observation:
        self.seed, self.turn = task.seed, 0
        return self.after_reset(self.inner.reset(task))

    def step(self, action: Action) -> Transition:
        transition = self.inner.step(action)
        return self.after_step(transition) if transition.valid else transition

    def after_reset(self, observation: Observation) -> Observation:
        """Return the changed first observation of an episode."""
        return observation

    def after_step(self, transition: Transition) -> Transition:
        """Return the changed transition of a valid action."""
        self.turn += 1
        return transition

    def close(self) -> None:
        self.inner.close()

    def picture(self) -> bytes:
        return picture_of(self.inner)

    def elements(self) -> Sequence[Element]:
        return elements_of(self.inner)

    def caption(self) -> str:
        return caption_of(self.inner)

    def privileged_state(self) -> Sequence[float]:
        return privileged_of(self.inner)

    def acting(self) -> Sequence[str]:
        return acting_in(self.inner)

    def observe(self, player: str) -> Observation:
        return observed_by(self.inner, player)

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
        """Return the wrapper's own state in the episode, as JSON."""
        return None

    def prepare(self, memory: Any) -> None:
        """Prepare the inner environment before it is restored."""

    def remember(self, memory: Any) -> None:
        """Restore the wrapper's own state from `memory`."""

    def progress(self) -> float:
        return self.inner.progress()

    def oracle(self) -> Sequence[Action]:
        return self.inner.oracle()

    def answer(self) -> Action:
        return answer_of(self.inner)

    def admissible(self) -> Sequence[str]:
        return self.inner.admissible()

    def sample_action(self, rng: random.Random) -> Action:
        return sample_action(self.inner, rng)

    @property
    def _id(self) -> str:
        return f"{type(self).__name__}/{self.spec.name}".replace(" ", "_")

    def _happens(self, what: str, share: float, turn: int) -> bool:
        return random.Random(f"{what} {self.seed} {turn}").random() < share


class Ending(Wrapper):
    """A wrapper that ends episodes or tracks their end."""

    keyed = True

    def __init__(self, inner: Environment, value: str = "") -> None:
        super().__init__(inner, value)
        self.over = False

    def after_reset(self, observation: Observation) -> Observation:
        self.over = False
        return observation

    def step(self, action: Action) -> Transition:
        if self.over:
            return Transition(Observation("It is over."), valid=False)
        return super().step(action)

    def memory(self) -> bool:
        return self.over

    def acting(self) -> Sequence[str]:
        return () if self.over and len(self.spec.players) > 1 else super().acting()

    def remember(self, memory: bool) -> None:
        self.over = memory


class Limited(Ending):
    """A limit on the number of actions."""

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self.limit = int(value)

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        return replace(spec, typical_turns=min(int(value), spec.typical_turns))

    def oracle(self) -> Sequence[Action]:
        """Return the inner plan; empty if it is longer than what is left."""
        plan = list(self.inner.oracle())
        return plan if len(plan) <= self.limit - self.turn else []
