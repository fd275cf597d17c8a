"""Asynchronous training's flow of rollouts: every group once, none too late, never too many."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Episode, Key
from palaestra.core.task import Split, Task
from palaestra.learning.loop.rollout_source import (
    AsynchronousSource,
    SourceState,
    SynchronousSource,
)
from palaestra.rollout.runner import Job


def number_of(key: Key, tasks: int) -> int:
    return (int(key.phase.removeprefix("rl/")) - 1) * tasks + key.group


@dataclass
class World:
    """Groups that take `patience` turns of the event loop, and a record of what happened."""

    tasks: int
    patience: Sequence[int]  # turns that the n-th group takes
    version: int = 0
    begun: dict[int, int] = field(default_factory=dict)  # number to the version at its start
    running: int = 0
    most: int = 0

    def sample_groups(self, step: int) -> list[list[Job]]:
        return [
            [Job(Key(f"rl/{step}", g, 0), Task(f"{step}/{g}", "world", Split.TRAIN, 0))]
            for g in range(self.tasks)
        ]

    async def roll_out(self, step: int, jobs: Sequence[Job]) -> list[Episode]:
        for job in jobs:
            n = number_of(job.key, self.tasks)
            self.begun[n] = self.version
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(self.patience[n % len(self.patience)]):
                await asyncio.sleep(0)
            self.running -= 1
        return [cast(Episode, job.key) for job in jobs]

    def numbers(self, episodes: Sequence[Episode]) -> list[int]:
        return [number_of(cast(Key, episode), self.tasks) for episode in episodes]


async def train(
    world: World, source: AsynchronousSource, steps: range, learn: Callable[[], Awaitable[None]]
) -> dict[int, int]:
    """Take every step's groups; returns the version that each one was trained at."""
    trained: dict[int, int] = {}
    async with source:
        for step in steps:
            numbers = world.numbers(await source.take(step))
            assert len(numbers) == world.tasks
            assert not set(numbers) & set(trained)
            trained |= dict.fromkeys(numbers, step - 1)
            await learn()
            world.version = step
    return trained


async def three_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


WORLDS = st.builds(World, st.integers(1, 4), st.lists(st.integers(0, 30), min_size=1, max_size=9))


@given(WORLDS, st.integers(1, 4), st.integers(1, 8), st.integers(1, 7))
def test_every_group_is_trained_on_once_and_within_the_bound(
    world: World, staleness: int, steps: int, together: int
) -> None:
    source = AsynchronousSource(
        world.sample_groups, world.roll_out, staleness=staleness, tasks=world.tasks, steps=steps,
        together=together,
    )  # fmt: skip
    trained = asyncio.run(train(world, source, range(1, steps + 1), three_turns))
    assert set(trained) == set(range(steps * world.tasks))
    assert all(0 <= trained[n] - world.begun[n] <= staleness for n in trained)
    assert world.most <= together


@given(WORLDS, st.integers(1, 3), st.integers(2, 7), st.data())
def test_a_resumed_source_continues_with_the_groups_that_are_left(
    world: World, staleness: int, steps: int, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(1, steps - 1))

    def source(version: int, state: SourceState | None) -> AsynchronousSource:
        return AsynchronousSource(
            world.sample_groups, world.roll_out, staleness=staleness, tasks=world.tasks,
            steps=steps, together=3, version=version, state=state,
        )  # fmt: skip

    first = source(0, None)
    before = asyncio.run(train(world, first, range(1, stop + 1), three_turns))
    earlier = dict(first.state.begun)  # running ones are started a second time
    later = range(stop + 1, steps + 1)
    after = asyncio.run(train(world, source(stop, first.state), later, three_turns))
    assert Counter([*before, *after]) == Counter(range(steps * world.tasks))
    for n, version in after.items():
        assert version - earlier.get(n, version) <= staleness


def test_a_group_that_is_complete_early_is_trained_on_early() -> None:
    world = World(tasks=1, patience=[50, 0, 0, 0])  # the first of four is slow

    async def first_two() -> list[int]:
        source = AsynchronousSource(
            world.sample_groups, world.roll_out, staleness=2, tasks=1, steps=4, together=4
        )
        async with source:
            taken = []
            for step in (1, 2):
                taken += world.numbers(await source.take(step))
                world.version = step
            return taken

    assert asyncio.run(first_two()) == [1, 2]


def test_rollouts_go_on_while_the_learner_works() -> None:
    world = World(tasks=2, patience=[1])

    async def learn() -> None:
        begun = len(world.begun)
        for _ in range(20):
            await asyncio.sleep(0)
        grown.append(len(world.begun) - begun)

    grown: list[int] = []
    source = AsynchronousSource(
        world.sample_groups, world.roll_out, staleness=2, tasks=2, steps=6, together=2
    )
    asyncio.run(train(world, source, range(1, 7), learn))
    assert max(grown) >= 2


def test_what_goes_wrong_in_a_group_is_raised() -> None:
    async def roll_out(step: int, jobs: Sequence[Job]) -> list[Episode]:
        raise OSError("the disk is full")

    async def take() -> None:
        world = World(tasks=2, patience=[1])
        async with AsynchronousSource(
            world.sample_groups, roll_out, staleness=1, tasks=2, steps=3, together=2
        ) as source:
            await source.take(1)

    with pytest.raises(OSError, match="disk"):
        asyncio.run(take())


def test_a_synchronous_source_rolls_out_whole_steps_in_turn() -> None:
    world = World(tasks=2, patience=[0])

    async def run() -> list[list[int]]:
        source = SynchronousSource(world.sample_groups, world.roll_out, staleness=1, steps=3)
        async with source:
            return [world.numbers(await source.take(step)) for step in (1, 2, 3)]

    assert asyncio.run(run()) == [[0, 1], [2, 3], [4, 5]]
