"""Groups: handed out when complete, and cut short when they have enough results."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.agent import Agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault, InputError, TooManyFaults
from palaestra.core.message import user
from palaestra.core.model import Sampling
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.database import Database
from tests.core.small import Stairs
from tests.learning.made import resident, tiny

TASKS = TaskSet("stairs")


def jobs(groups: int, members: int) -> list[Job]:
    return [
        Job(Key("rl", group, member), TASKS.task(Split.TRAIN, group))
        for group in range(groups)
        for member in range(members)
    ]


class Paced(Agent):
    """Climbs; before each step it waits as many rounds of the loop as its plan says."""

    name = "paced"

    def __init__(self, waits: dict[tuple[int, int], int]) -> None:
        self.waits = waits
        self.met: list[Key] = []  # whose episodes were begun

    async def run(self, session: Session) -> None:
        self.met.append(session.key)
        wait = self.waits.get((session.key.group, session.key.member), 0)
        while not session.over:
            for _ in range(wait):
                await asyncio.sleep(0)
            if wait < 0:
                raise EnvironmentFault("step", "the stairs gave way")
            await session.act("up")


class Endless(Agent):
    """Members from `first` on never end."""

    name = "endless"

    def __init__(self, first: int) -> None:
        self.first = first

    async def run(self, session: Session) -> None:
        await session.act("up")
        if session.key.member >= self.first:
            await asyncio.Event().wait()
        while not session.over:
            await session.act("up")


def rollout(agent: Agent, **more: Any) -> Rollout:
    async def worlds(id: str) -> AsyncEnvironment:
        return Stairs()

    return Rollout(agent, worlds, more.pop("models", {}), **more)


async def handed_out(running: Rollout, jobs: Sequence[Job]) -> list[list[Episode]]:
    return [group async for group in running.groups(jobs)]


def lengths(episodes: Sequence[Episode]) -> list[int]:
    return [len(episode.steps) for episode in episodes]


# ── early groups ─────────────────────────────────────────────────────────────


def test_a_group_is_yielded_while_others_are_running() -> None:
    first_ended = asyncio.Event()

    class Waiting(Agent):
        name = "waiting"

        async def run(self, session: Session) -> None:
            if session.key.group == 1:
                await first_ended.wait()
            while not session.over:
                await session.act("up")

    async def use() -> list[int]:
        order = []
        async for group in rollout(Waiting()).groups(jobs(2, 3)):
            order.append(group[0].key.group)
            assert [episode.key for episode in group] == [Key("rl", order[-1], m) for m in range(3)]
            first_ended.set()  # would never come, were groups handed out at the end
        return order

    assert asyncio.run(use()) == [0, 1]


def test_leaving_early_ends_the_running_rollouts() -> None:
    ended: list[Key] = []

    class Noting(Endless):
        async def run(self, session: Session) -> None:
            try:
                await super().run(session)
            finally:
                ended.append(session.key)

    async def use() -> None:
        running = rollout(Noting(first=2))
        mixed = [*jobs(1, 2), Job(Key("rl", 1, 2), TASKS.task(Split.TRAIN, 1))]
        async with contextlib.aclosing(running.groups(mixed)) as groups:
            async for group in groups:
                assert len(group) == 2
                break
        assert len(ended) == 3
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(use())


def test_jobs_of_one_group_need_not_stand_together() -> None:
    mixed = jobs(3, 4)[::5] + [job for i, job in enumerate(jobs(3, 4)) if i % 5]
    groups = asyncio.run(handed_out(rollout(Paced({})), mixed))
    assert sorted(len(group) for group in groups) == [4, 4, 4]
    assert all(len({episode.key.group for episode in group}) == 1 for group in groups)


def test_two_jobs_of_one_key_are_refused() -> None:
    with pytest.raises(InputError, match="same key"):
        asyncio.run(rollout(Paced({})).run([*jobs(1, 2), *jobs(1, 1)]))


def test_a_slow_learner_does_not_stop_rollouts() -> None:
    agent = Paced({})

    async def use() -> None:
        async with contextlib.aclosing(rollout(agent).groups(jobs(5, 2))) as groups:
            async for _ in groups:
                for _ in range(100):
                    await asyncio.sleep(0)
                assert len(agent.met) == 10
                break

    asyncio.run(use())


def test_too_many_errors_raise_after_the_last_group() -> None:
    groups: list[list[Episode]] = []

    async def use() -> None:
        async for group in rollout(Paced({(0, 0): -1, (0, 2): -1})).groups(jobs(1, 3)):
            groups.append(group)

    with pytest.raises(TooManyFaults, match="2 of 3"):
        asyncio.run(use())
    assert [len(group) for group in groups] == [3]


# ── enough results ───────────────────────────────────────────────────────────


def test_stragglers_are_cancelled_recorded_and_never_scored(tmp_path: Path) -> None:
    store = Database.open(tmp_path / "run.sqlite")
    shown: list[Key] = []
    running = rollout(
        Endless(first=2), needed=2, store=store, finished=lambda e: shown.append(e.key)
    )
    episodes = asyncio.run(running.run(jobs(3, 4)))
    assert [episode.outcome.solved for episode in episodes] == [True, True, False, False] * 3
    cancelled = [episode for episode in episodes if episode.outcome.was_cancelled]
    assert len(cancelled) == 6 and not any(episode.outcome.scored for episode in cancelled)
    assert lengths(cancelled) == [1] * 6  # their steps so far are kept
    assert store.episodes("rl") == episodes
    assert sorted(map(str, shown)) == sorted(str(job.key) for job in jobs(3, 4))
    store.close()


def test_jobs_that_have_not_begun_never_begin() -> None:
    agent = Paced({})
    running = rollout(agent, needed=2, concurrency=1)
    episodes = asyncio.run(running.run(jobs(2, 5)))
    assert agent.met == [Key("rl", group, member) for group in range(2) for member in range(2)]
    assert [episode.outcome.scored for episode in episodes] == [True, True, *[False] * 3] * 2
    assert all(episode.observation is None for episode in episodes if not episode.outcome.scored)


def test_a_runner_continues_with_the_next_job_after_a_cancelled_one() -> None:
    episodes = asyncio.run(rollout(Endless(first=1), needed=1, concurrency=3).run(jobs(20, 3)))
    assert sum(episode.outcome.solved for episode in episodes) == 20
    assert sum(episode.outcome.was_cancelled for episode in episodes) == 40


def test_errors_are_no_results() -> None:
    broken = Paced({(0, 0): -1, (0, 1): -1, (0, 4): 1000})
    episodes = asyncio.run(rollout(broken, needed=2).run(jobs(1, 5)))
    owners = [episode.outcome.owner for episode in episodes]
    assert owners[:2] == [Owner.ENVIRONMENT] * 2
    assert [episode.outcome.solved for episode in episodes[2:]] == [True, True, False]
    assert episodes[4].outcome.was_cancelled


def test_an_agent_that_will_not_be_stopped_has_its_own_end() -> None:
    here = [asyncio.Event() for _ in range(4)]

    class Stubborn(Agent):
        name = "stubborn"

        async def run(self, session: Session) -> None:
            if session.key.member == 1:
                here[session.key.group].set()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            await here[session.key.group].wait()
            while not session.over:
                await session.act("up")

    running = rollout(Stubborn(), needed=1, concurrency=2)
    episodes = asyncio.run(running.run(jobs(4, 2)))
    assert all(episode.outcome.solved for episode in episodes)


def test_the_end_of_the_whole_is_not_taken_for_the_end_of_a_straggler() -> None:
    async def use() -> None:
        running = asyncio.create_task(rollout(Endless(first=0), needed=1).run(jobs(2, 2)))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(use())


def test_a_cancelled_straggler_frees_its_slot_in_the_engine() -> None:
    model = resident(tiny(), slots=4)

    class Talking(Agent):
        """The first member says one word, the others as many as fit."""

        name = "talking"

        async def run(self, session: Session) -> None:
            most = 1 if session.key.member == 0 else 100
            await session.generate([user("hello")], sampling=Sampling(max_tokens=most))

    running = rollout(Talking(), needed=1, models={"agent": model})

    async def use() -> list[Episode]:
        episodes = await running.run(jobs(1, 4))
        for _ in range(20):
            await asyncio.sleep(0)
        assert model.engine.pending == 0
        return episodes

    episodes = asyncio.run(use())
    assert len(episodes[0].calls) == 1
    assert any(episode.outcome.was_cancelled for episode in episodes)


plans = st.lists(st.lists(st.integers(-1, 6), min_size=1, max_size=5), min_size=1, max_size=5)


@settings(deadline=None, max_examples=80)
@given(plans, st.none() | st.integers(1, 4), st.integers(1, 8), st.booleans())
def test_each_job_has_one_outcome_and_each_group_is_whole(
    tmp_path_factory: pytest.TempPathFactory,
    plan: list[list[int]],
    needed: int | None,
    concurrency: int,
    stored: bool,
) -> None:
    store = Database.open(tmp_path_factory.mktemp("groups") / "run.sqlite") if stored else None
    waits = {(g, m): wait for g, group in enumerate(plan) for m, wait in enumerate(group)}
    wanted = [Job(Key("rl", *place), TASKS.task(Split.TRAIN, place[0])) for place in waits]
    shown: list[Episode] = []
    agent = Paced(waits)
    running = rollout(
        agent, needed=needed, concurrency=concurrency, store=store, finished=shown.append
    )
    groups: list[list[Episode]] = []

    async def use() -> None:
        with contextlib.suppress(TooManyFaults):
            async for group in running.groups(wanted):
                groups.append(group)

    asyncio.run(use())
    episodes = [episode for group in groups for episode in group]
    assert sorted(str(e.key) for e in episodes) == sorted(str(job.key) for job in wanted)
    assert sorted(str(e.key) for e in shown) == sorted(str(job.key) for job in wanted)
    assert len(agent.met) == len(set(agent.met))
    for group in groups:
        place = group[0].key.group
        assert [e.key for e in group] == [Key("rl", place, m) for m in range(len(plan[place]))]
        valid = sum(episode.outcome.scored for episode in group)
        sound = sum(wait >= 0 for wait in plan[place])
        cancelled = sum(episode.outcome.was_cancelled for episode in group)
        if needed is None:
            assert valid == sound and cancelled == 0
        else:
            assert min(needed, sound) <= valid <= sound
            assert cancelled == 0 or valid >= needed
    if store is not None:
        stored_ones = sorted(store.episodes("rl"), key=lambda e: e.key.group * 10 + e.key.member)
        assert stored_ones == sorted(episodes, key=lambda e: e.key.group * 10 + e.key.member)
        store.close()


# ── resumed ──────────────────────────────────────────────────────────────────


def test_a_group_with_a_quorum_does_not_run_again(tmp_path: Path) -> None:
    store = Database.open(tmp_path / "run.sqlite")
    first = asyncio.run(rollout(Endless(first=2), needed=2, store=store).run(jobs(2, 4)))
    agent = Paced({})
    again = asyncio.run(rollout(agent, needed=2, store=store).run(jobs(2, 4)))
    assert again == first and agent.met == []
    store.close()


def test_a_cancelled_rollout_runs_if_it_is_needed_now(tmp_path: Path) -> None:
    store = Database.open(tmp_path / "run.sqlite")
    asyncio.run(rollout(Endless(first=1), needed=1, store=store).run(jobs(1, 3)))
    again = asyncio.run(rollout(Endless(first=9), store=store).run(jobs(1, 3)))
    assert [str(episode.outcome) for episode in again] == ["success"] * 3
    assert lengths(again) == [3, 3, 3]
    assert store.episodes("rl") == again
    store.close()


def test_a_group_interrupted_before_its_stragglers_were_recorded_is_settled(
    tmp_path: Path,
) -> None:
    store = Database.open(tmp_path / "run.sqlite")
    asyncio.run(rollout(Paced({}), store=store).run(jobs(1, 2)))
    agent = Paced({})
    episodes = asyncio.run(rollout(agent, needed=2, store=store).run(jobs(1, 4)))
    assert agent.met == []
    assert [str(episode.outcome) for episode in episodes] == [
        "success",
        "success",
        *["error(cancelled, infrastructure)"] * 2,
    ]
    store.close()


# ── many queued ──────────────────────────────────────────────────────────────


def test_a_queued_task_holds_a_few_hundred_bytes_beyond_its_own() -> None:
    started = asyncio.Event()

    class Holding(Agent):
        name = "holding"

        async def run(self, session: Session) -> None:
            started.set()
            await asyncio.Event().wait()

    wanted = jobs(10_000, 1)

    async def use() -> int:
        running = rollout(Holding(), concurrency=4)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        task = asyncio.create_task(running.run(wanted))
        await started.wait()
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return held

    assert asyncio.run(use()) < 400 * len(wanted)
