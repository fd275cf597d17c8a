"""A pool of environments that outlive a rollout, so that each starts only once.

A rollout begins each episode with a reset, whatever the environment has run before. The next
rollout can therefore reuse the environments of the previous one. For environments that start a
virtual machine, this saves most of a step's time. The pool holds environments of one id at a time;
idle ones are closed when the id changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from palaestra.core.environment import AsyncEnvironment

AsyncEnvironmentFactory = Callable[[str], Awaitable[AsyncEnvironment]]
"""Makes a new environment of an id."""


class EnvironmentPool:
    """The environments of successive rollouts; idle ones are reused. Close it at the end."""

    def __init__(self, make: AsyncEnvironmentFactory) -> None:
        self._make = make
        self._id = ""
        self._idle: list[AsyncEnvironment] = []

    async def take(self, id: str) -> AsyncEnvironment:
        """Return an unused environment; its next call must be a reset. Raises like `make`."""
        if id != self._id:
            await self.close()
            self._id = id
        return self._idle.pop() if self._idle else await self._make(id)

    async def keep(self, id: str, environment: AsyncEnvironment) -> None:
        """Take back a working environment with no call in progress."""
        if id == self._id:
            self._idle.append(environment)
        else:
            await environment.close()

    async def close(self) -> None:
        """Close all idle environments."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(environment.close() for environment in idle))
