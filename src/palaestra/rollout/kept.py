"""Worlds that outlive a rollout, so that their start is paid for once.

A rollout begins each episode with a reset, whatever its world has lived before. So the next
rollout may go on with the worlds of the one before; for those that start a virtual machine each,
that is most of a step's time. Only worlds of one environment are kept: others that are idle are
closed when it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from palaestra.core.environment import World


class KeptWorlds:
    """Makes worlds, or hands out idle ones; close it after the last rollout."""

    def __init__(self, make: Callable[[str], Awaitable[World]]) -> None:
        self._make = make
        self._environment = ""
        self._idle: list[World] = []

    async def world(self, environment: str) -> World:
        """One that nobody else has; its next call must be a reset. Raises like `make`."""
        if environment != self._environment:
            await self.close()
            self._environment = environment
        return self._idle.pop() if self._idle else await self._make(environment)

    async def keep(self, environment: str, world: World) -> None:
        """Take back a world that works, with no call under way."""
        if environment == self._environment:
            self._idle.append(world)
        else:
            await world.close()

    async def close(self) -> None:
        """Close those that are idle."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(world.close() for world in idle))
