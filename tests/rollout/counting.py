"""Episodes in the world that counts, in a worker or in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.task import Task
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.rollout import faulty


def task(seed: int) -> Task:
    return Task(f"train/{seed}", "counting", seed)


async def episode(world: AsyncEnvironment, seed: int, words: Sequence[str]) -> list[Any]:
    seen: list[Any] = [await world.reset(task(seed))]
    for word in words:
        seen.append(await world.step(Action(word)))
    return seen


def expected(seed: int, words: Sequence[str]) -> list[Any]:
    return asyncio.run(episode(LocalEnvironment(faulty.Counting()), seed, words))
