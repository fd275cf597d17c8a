"""Environments whose observations carry notes to the agent, such as a hint or a command.

The notes are part of what the session records, so prompts that hold them are token-exact like all
others. The environment itself knows nothing of them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Observation,
    Sight,
    Signals,
    Transition,
)
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.rollout.environment_pool import EnvironmentPool


class Notes(ABC):
    """What is added to the observations of one environment, one episode after the other."""

    @abstractmethod
    def first(self, task: Task, signals: Signals) -> str:
        """Return the note to the first observation of a task."""

    @abstractmethod
    def after(self, action: Action, transition: Transition, signals: Signals) -> str:
        """Return the note to what an action led to."""

    def state(self) -> Any:
        """Return what a snapshot of the environment saves with it, as JSON can hold it."""
        return None

    def restore(self, state: Any) -> None:
        """Take back a state."""


class AnnotatedEnvironment(AsyncEnvironment):
    """An environment with notes at the ends of its observations."""

    def __init__(self, inner: AsyncEnvironment, notes: Notes) -> None:
        self.inner, self._notes = inner, notes
        self.instructions = inner.instructions
        self.tools: tuple[Tool, ...] = inner.tools
        self.capabilities, self.deterministic = inner.capabilities, inner.deterministic
        self.players, self.stakes = inner.players, inner.stakes
        self.token_time = inner.token_time

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        first, signals = await self.inner.reset(task)
        self.tools = self.inner.tools
        return _with_note(first, self._notes.first(task, signals)), signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        transition, signals = await self.inner.step(action)
        self.tools = self.inner.tools
        seen = _with_note(transition.observation, self._notes.after(action, transition, signals))
        return replace(transition, observation=seen), signals

    async def oracle(self) -> list[Action]:
        return await self.inner.oracle()

    async def admissible(self) -> list[str]:
        return await self.inner.admissible()

    async def sample(self, seed: int) -> Action:
        return await self.inner.sample(seed)

    async def look(self) -> Sight:
        return await self.inner.look()

    async def answer(self) -> Action:
        return await self.inner.answer()

    async def snapshot(self) -> bytes:
        own = json.dumps(self._notes.state()).encode()
        return b"%d\n%b%b" % (len(own), own, await self.inner.snapshot())

    async def restore(self, snapshot: bytes) -> Signals:
        length, _, rest = snapshot.partition(b"\n")
        self._notes.restore(json.loads(rest[: int(length)]))
        signals = await self.inner.restore(rest[int(length) :])
        self.tools = self.inner.tools
        return signals

    async def close(self) -> None:
        await self.inner.close()


class AnnotatedPool:
    """A pool whose environments are annotated while they are taken."""

    def __init__(self, pool: EnvironmentPool, notes: Callable[[], Notes]) -> None:
        """Annotate each environment of `pool` with notes of its own."""
        self._pool, self._notes = pool, notes

    async def take(self, id: str) -> AsyncEnvironment:
        """See `EnvironmentPool`."""
        return AnnotatedEnvironment(await self._pool.take(id), self._notes())

    async def keep(self, id: str, environment: AsyncEnvironment) -> None:
        """See `EnvironmentPool`."""
        assert isinstance(environment, AnnotatedEnvironment)  # one that was taken here
        await self._pool.keep(id, environment.inner)


def _with_note(observation: Observation, note: str) -> Observation:
    return replace(observation, text=observation.text + note) if note else observation
