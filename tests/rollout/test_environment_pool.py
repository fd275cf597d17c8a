"""Worlds that outlive a rollout: made once, handed out again, none left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil
import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action, AsyncEnvironment, Signals, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, TooManyFaults
from palaestra.core.task import Split, TaskSet
from palaestra.rollout.environment_pool import EnvironmentPool
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from tests.core.small import Counted, Stairs, renderer
from tests.rollout import faulty


class Closing(Stairs):
    """Says whether it was closed; others have their turns meanwhile."""

    closed = 0

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        await asyncio.sleep(0)
        return await super().step(action)

    async def close(self) -> None:
        self.closed += 1


class Breaking(Closing):
    async def step(self, action: Action) -> tuple[Transition, Signals]:
        raise EnvironmentFault("step", "it broke")


def jobs(count: int, phase: str = "test", environment: str = "stairs") -> list[Job]:
    tasks = TaskSet(environment)
    return [Job(Key(phase, i), tasks.task(Split.TEST, i)) for i in range(count)]


class Made:
    """Rollouts over worlds that are kept, and all worlds that were ever made."""

    def __init__(self, world: type[Closing] = Closing) -> None:
        self.worlds: list[Closing] = []
        self.kind = world
        self.kept = EnvironmentPool(self.make)

    async def make(self, environment: str) -> AsyncEnvironment:
        self.worlds.append(self.kind())
        return self.worlds[-1]

    async def run(self, wanted: Sequence[Job], concurrency: int = 3) -> list[Episode]:
        rollout = Rollout(
            DirectAgent(),
            self.kept.take,
            {"agent": Counted(["up"] * 3, renderer=renderer())},
            concurrency=concurrency,
            keep=self.kept.keep,
        )
        return await rollout.run(wanted)

    @property
    def open(self) -> int:
        return sum(world.closed == 0 for world in self.worlds)


def test_the_next_rollout_reuses_the_environments_of_the_previous_one() -> None:
    async def main() -> None:
        made = Made()
        for step in range(4):
            found = await made.run(jobs(9, f"rl/{step}"))
            assert all(episode.outcome.solved for episode in found)
        assert len(made.worlds) == 3 == made.open
        await made.kept.close()
        assert [world.closed for world in made.worlds] == [1, 1, 1]

    asyncio.run(main())


def test_worlds_of_another_environment_make_room() -> None:
    async def main() -> None:
        made = Made()
        await made.run(jobs(6))
        await made.run(jobs(6, "transfer", "other"))
        assert len(made.worlds) == 6 and made.open == 3
        await made.kept.close()
        assert made.open == 0

    asyncio.run(main())


def test_two_environments_in_one_rollout_leave_no_world_behind() -> None:
    async def main() -> None:
        made = Made()
        mixed = [jobs(8)[i] if i % 2 else jobs(8, "more", "other")[i] for i in range(8)]
        found = await made.run(mixed)
        assert all(episode.outcome.solved for episode in found)
        await made.kept.close()
        assert made.open == 0 and all(world.closed == 1 for world in made.worlds)

    asyncio.run(main())


def test_a_world_that_broke_is_not_handed_out_again() -> None:
    async def main() -> None:
        made = Made(Breaking)
        with pytest.raises(TooManyFaults):
            await made.run(jobs(4))
        assert made.open == 0 and len(made.worlds) >= 4
        assert await made.kept.take("stairs") is made.worlds[-1]  # a new one

    asyncio.run(main())


def test_a_rollout_that_is_left_early_closes_what_was_in_use() -> None:
    class Endless(Closing):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            await asyncio.sleep(3600)
            raise AssertionError

    async def main() -> None:
        made = Made(Endless)
        running = asyncio.create_task(made.run(jobs(3)))
        while len(made.worlds) < 3:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert made.open == 0

    asyncio.run(main())


def test_a_kept_world_outlives_its_worker() -> None:
    id = f"{faulty.__name__}:Counting"

    async def main() -> None:
        async with WorkerPool(1) as pool:
            kept = EnvironmentPool(pool.make)
            world = await kept.take(id)
            task = TaskSet(id).task(Split.TEST, 0)
            first = await world.reset(task)
            await kept.keep(id, world)
            for worker in psutil.Process().children():
                worker.kill()
                while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # for the event loop to notice
            again = await kept.take(id)
            assert again is world and await again.reset(task) == first
            await kept.close()

    asyncio.run(main())
