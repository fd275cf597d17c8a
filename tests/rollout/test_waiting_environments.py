"""Environments that wait share their worker: their calls are in progress at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.errors import EnvironmentFault
from palaestra.rollout.fair_lock import FairLock
from palaestra.rollout.worker_pool import WorkerPool
from tests.rollout import faulty
from tests.rollout.counting import episode, expected, task

T = TypeVar("T")

FAULTY = faulty.__name__
WAITING = f"{FAULTY}:Waiting"
WORDS = ("3", "-4", "what?", "nap 0.05", "1", "2", "7")


def pooled(
    use: Callable[[WorkerPool], Coroutine[Any, Any, T]], timeout: float = 30.0
) -> tuple[T, int, int]:
    """Return a result with one worker, how often it was replaced, and how many were added."""

    async def run() -> tuple[T, int, int]:
        async with WorkerPool(1, timeout) as pool:
            return await use(pool), pool.restarts, len(pool._handles) - 1

    return asyncio.run(run())


async def ready(pool: WorkerPool, count: int, id: str = WAITING) -> list[AsyncEnvironment]:
    worlds = [await pool.make(id) for _ in range(count)]
    for world in worlds:
        await world.reset(task(0))
    return worlds


def test_calls_are_in_progress_at_once() -> None:
    async def use(pool: WorkerPool) -> list[str]:
        worlds = await ready(pool, 4)
        steps = await asyncio.gather(*(world.step(Action("meet")) for world in worlds))
        return [transition.observation.text for transition, _ in steps]

    assert pooled(use) == (["not a number"] * 4, 0, 0)


def test_waiting_moves_no_environment_and_adds_no_worker() -> None:
    async def use(pool: WorkerPool) -> None:
        worlds = await ready(pool, 12)
        await asyncio.gather(*(world.step(Action("nap 0.6")) for world in worlds))

    assert pooled(use)[1:] == (0, 0)


def test_episodes_at_once_are_those_of_one_process() -> None:
    async def use(pool: WorkerPool) -> list[list[Any]]:
        worlds = [await pool.make(WAITING) for _ in range(20)]
        return await asyncio.gather(*(episode(world, n, WORDS) for n, world in enumerate(worlds)))

    assert pooled(use) == ([expected(seed, WORDS) for seed in range(20)], 0, 0)


@pytest.mark.slow
def test_only_the_call_that_ends_the_process_alone_is_at_fault() -> None:
    async def use(pool: WorkerPool) -> list[list[Any]]:
        guilty, *others = [await pool.make(WAITING) for _ in range(5)]
        await guilty.reset(task(0))
        for seed, world in enumerate(others):
            await world.reset(task(seed))
        crash = asyncio.create_task(guilty.step(Action("crash")))
        steps = await asyncio.gather(*(world.step(Action("nap 0.5")) for world in others))
        assert all(not step.valid for step, _ in steps)
        with pytest.raises(EnvironmentFault, match="exit status 3") as caught:
            await crash
        assert caught.value.kind == "crash"
        return [await episode(world, seed, WORDS) for seed, world in enumerate(others)]

    seen, restarts, added = pooled(use)
    assert seen == [expected(seed, WORDS) for seed in range(4)]
    assert restarts == 2 and added == 0  # with the others, and alone


@pytest.mark.slow
def test_a_call_that_hangs_ends_at_its_limit_and_others_are_made_again() -> None:
    async def use(pool: WorkerPool) -> list[Any]:
        hanging, other = await ready(pool, 2)
        first = asyncio.create_task(hanging.step(Action("nap 3600")))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(other.step(Action("nap 0.8")))
        with pytest.raises(EnvironmentFault) as caught:
            await first
        assert caught.value.kind == "hang" and "faulty.py" in caught.value.detail
        await second
        return await episode(other, 3, WORDS)

    assert pooled(use, timeout=1.0)[0] == expected(3, WORDS)


def test_no_other_environment_is_called_while_others_wait() -> None:
    async def use(pool: WorkerPool) -> list[int]:
        worlds = await ready(pool, 3)
        [lonely] = await ready(pool, 1, f"{FAULTY}:Lonely")
        naps = [asyncio.create_task(world.step(Action("nap 0.2"))) for world in worlds]
        found = []
        for _ in range(3):
            found.append((await lonely.step(Action("1")))[0].info["naps"])
            naps += [asyncio.create_task(world.step(Action("nap 0.05"))) for world in worlds]
        await asyncio.gather(*naps)
        return found

    assert pooled(use)[0] == [0, 0, 0]


def test_random_cancellations_leave_every_environment_in_step() -> None:
    rng = random.Random(4)

    async def use(pool: WorkerPool) -> list[list[Any]]:
        worlds = [await pool.make(WAITING) for _ in range(6)]

        async def with_cancellations(world: AsyncEnvironment, seed: int) -> list[Any]:
            seen: list[Any] = [await world.reset(task(seed))]
            for word in WORDS:
                if rng.random() < 0.5:
                    lost = asyncio.create_task(world.step(Action("nap 0.02")))
                    await asyncio.sleep(rng.random() * 0.03)
                    lost.cancel()
                    await asyncio.wait({lost})
                    if not lost.cancelled():  # it came first: refused, and nothing changed
                        assert not lost.result()[0].valid
                seen.append(await world.step(Action(word)))
            return seen

        return await asyncio.gather(*(with_cancellations(w, n) for n, w in enumerate(worlds)))

    assert pooled(use)[0] == [expected(seed, WORDS) for seed in range(6)]


# ── the lock ─────────────────────────────────────────────────────────────────


CALLERS = st.tuples(st.booleans(), st.booleans(), st.integers(0, 3))


@given(st.lists(CALLERS, max_size=12))
def test_a_lock_is_held_alone_or_shared_and_all_that_wait_get_it(
    callers: list[tuple[bool, bool, int]],
) -> None:
    """Callers share the lock or do not, are cancelled or not, and keep it for some rounds."""

    async def use() -> list[int]:
        lock, holding, served = FairLock(3), list[bool](), list[int]()

        async def come(number: int, shared: bool, rounds: int) -> None:
            await lock.acquire(may_leave=False, shared=shared)
            served.append(number)
            holding.append(shared)
            assert holding == [False] or (all(holding) and len(holding) <= 3)
            for _ in range(rounds):
                await asyncio.sleep(0)
            holding.remove(shared)
            lock.release()

        tasks = [
            asyncio.create_task(come(number, shared, rounds))
            for number, (shared, _, rounds) in enumerate(callers)
        ]
        await asyncio.sleep(0)
        for number, (_, cancelled, _) in enumerate(callers):
            if cancelled and number not in served:
                tasks[number].cancel()
        await asyncio.gather(*(one for one in tasks if not one.cancelling()))
        await lock.acquire(may_leave=False)  # it is free again
        return served

    served = asyncio.run(use())
    assert served == sorted(served)  # first come, first served
    assert {n for n, (_, cancelled, _) in enumerate(callers) if not cancelled} <= {*served}
