"""A slow call keeps its worker, and no other caller waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.rollout.fair_lock import FairLock, Slow
from palaestra.rollout.worker_pool import WorkerPool
from tests.rollout import faulty
from tests.rollout.counting import episode, expected, task

T = TypeVar("T")

FAULTY = faulty.__name__
WORDS = ("3", "-4", "what?", "10", "1", "2", "7")


def pooled(use: Callable[[WorkerPool], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with WorkerPool(1) as pool:
            return await use(pool)

    return asyncio.run(run())


def test_worlds_of_one_worker_go_on_while_one_of_them_does_not_answer() -> None:
    async def use(pool: WorkerPool) -> list[list[Any]]:
        hung = await pool.make(f"{FAULTY}:Napping")
        others = [await pool.make(f"{FAULTY}:Counting") for _ in range(8)]
        await hung.reset(task(0))
        first = [await world.reset(task(seed)) for seed, world in enumerate(others)]
        napping = asyncio.create_task(hung.step(Action("nap 3600")))

        async def go_on(seed: int, world: AsyncEnvironment) -> list[Any]:
            return [first[seed], *[await world.step(Action(word)) for word in WORDS]]

        seen = await asyncio.gather(*(go_on(seed, world) for seed, world in enumerate(others)))
        fresh = await episode(await pool.make(f"{FAULTY}:Counting"), 9, WORDS)
        assert pool.restarts == 0 and not napping.done()
        napping.cancel()
        return [*seen, fresh]

    assert pooled(use) == [*(expected(seed, WORDS) for seed in range(8)), expected(9, WORDS)]


def test_a_slow_environment_stays_in_its_worker_and_continues() -> None:
    async def use(pool: WorkerPool) -> list[str]:
        slow, other = [await pool.make(f"{FAULTY}:Napping") for _ in range(2)]
        await slow.reset(task(0))
        await other.reset(task(1))
        await asyncio.gather(slow.step(Action("nap 0.6")), other.step(Action("1")))
        steps = await asyncio.gather(slow.step(Action("1")), other.step(Action("1")))
        return [transition.observation.text for transition, _ in steps]

    assert pooled(use) == ["total 1 after 1", "total 3 after 2"]  # a nap is no number


def test_a_world_that_cannot_be_repeated_waits_where_it_is() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        slow = await pool.make(f"{FAULTY}:Napping")
        other = await pool.make(f"{FAULTY}:Napping/honest")
        await slow.reset(task(0))
        seen: list[Any] = [await other.reset(task(5))]
        napping = asyncio.create_task(slow.step(Action("nap 1")))
        await asyncio.sleep(0.1)
        for word in WORDS:
            seen.append(await other.step(Action(word)))
            assert napping.done()
        return seen

    assert pooled(use) == expected(5, WORDS)


def test_no_more_workers_are_added_than_allowed() -> None:
    async def use(pool: WorkerPool) -> int:
        pool._most = 3
        worlds = [await pool.make(f"{FAULTY}:Napping") for _ in range(6)]
        for world in worlds:
            await world.reset(task(0))
        await asyncio.gather(*(world.step(Action("nap 0.6")) for world in worlds))
        return len(pool._handles)

    assert 1 < pooled(use) <= 3


# ── the lock ─────────────────────────────────────────────────────────────────


def test_a_fair_lock_serves_in_order_of_arrival_and_skips_cancelled_callers() -> None:
    async def use() -> list[int]:
        lock, served = FairLock(), []

        async def come(number: int) -> None:
            await lock.acquire(may_leave=False)
            served.append(number)
            await asyncio.sleep(0)
            lock.release()

        tasks = [asyncio.create_task(come(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await lock.acquire(may_leave=False)  # it is free again
        return served

    assert asyncio.run(use()) == [0, 1, 3, 4, 5]


def test_a_caller_cancelled_on_acquiring_passes_the_lock_on() -> None:
    async def use() -> None:
        lock = FairLock()
        await lock.acquire(may_leave=False)
        second = asyncio.create_task(lock.acquire(may_leave=False))
        third = asyncio.create_task(lock.acquire(may_leave=False))
        await asyncio.sleep(0)
        lock.release()
        second.cancel()
        await asyncio.wait({second})
        assert second.cancelled()
        await third

    asyncio.run(use())


def test_only_callers_that_may_leave_leave_a_slow_lock() -> None:
    async def use() -> list[type[BaseException] | None]:
        lock = FairLock()
        await lock.acquire(may_leave=False)
        tasks = [asyncio.create_task(lock.acquire(may_leave=leave)) for leave in (True, False)]
        await asyncio.sleep(0)
        lock.mark_slow()
        late = asyncio.create_task(lock.acquire(may_leave=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert lock.slow and not tasks[1].done()
        lock.release()
        await tasks[1]
        assert not lock.slow
        results = await asyncio.gather(tasks[0], late, return_exceptions=True)
        return [type(result) for result in results]  # type: ignore[misc]

    assert asyncio.run(use()) == [Slow, Slow]
