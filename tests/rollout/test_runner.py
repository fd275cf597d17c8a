"""Rollouts: many episodes at once, each one recorded, none able to harm another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, AsyncEnvironment, Observation, Signals, Transition
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import (
    EnvironmentFault,
    InfrastructureFault,
    InputError,
    TooManyFaults,
)
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.core.task import Split, Task, TaskSet
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.database import Database
from tests.core.small import Counted, Stairs, renderer

TASKS = TaskSet("stairs")


class Killed(BaseException):
    """The process ends here."""


class Cutting(Database):
    """A database whose process is killed after a number of events."""

    left = 10**9

    def append(self, key: Key, event: Event) -> asyncio.Future[None] | None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super().append(key, event)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "run.db")
    yield database
    database.close()


def jobs(count: int, phase: str = "test") -> list[Job]:
    return [Job(Key(phase, i), TASKS.task(Split.TEST, i)) for i in range(count)]


def rollout(
    model: Model | None = None,
    world: type[AsyncEnvironment] = Stairs,
    agent: Agent | None = None,
    **more: Any,
) -> Rollout:
    async def worlds(id: str) -> AsyncEnvironment:
        return world()

    models = {"agent": model or Counted(["up"] * 3, renderer=renderer())}
    return Rollout(agent or DirectAgent(), worlds, models, **more)


def run(rollout: Rollout, jobs: Sequence[Job]) -> list[Episode]:
    return asyncio.run(rollout.run(jobs))


def timeless(episodes: Sequence[Episode]) -> list[Episode]:
    return [
        replace(
            episode,
            usage=replace(episode.usage, seconds=0.0),
            steps=tuple(replace(step, seconds=0.0) for step in episode.steps),
        )
        for episode in episodes
    ]


class Uneven(Counted):
    """Answers after a while that differs from call to call."""

    here = most = 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.here += 1
        self.most = max(self.most, self.here)
        for _ in range(prompt.seed % 7):
            await asyncio.sleep(0)
        self.here -= 1
        return await super().generate(prompt)


# ── many at once ─────────────────────────────────────────────────────────────


def test_results_stand_in_the_order_of_the_jobs() -> None:
    order: list[Key] = []
    running = rollout(Uneven(["up"] * 3), concurrency=8, finished=lambda e: order.append(e.key))
    wanted = jobs(30)[::-1]
    episodes = run(running, wanted)
    assert [episode.key for episode in episodes] == [job.key for job in wanted]
    assert sorted(map(str, order)) == sorted(str(job.key) for job in wanted)
    assert order != [job.key for job in wanted]  # they did finish in another order


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_no_more_sessions_run_at_once_than_allowed(limit: int) -> None:
    made = []

    async def worlds(id: str) -> AsyncEnvironment:
        made.append(id)
        return Stairs()

    model = Uneven(["up"] * 3)
    running = Rollout(DirectAgent(), worlds, {"agent": model}, concurrency=limit)
    assert all(episode.outcome.solved for episode in run(running, jobs(20)))
    assert model.most <= limit and len(made) <= limit
    assert model.most > 1 or limit == 1


def test_what_episodes_are_does_not_depend_on_how_many_run_at_once() -> None:
    one = run(rollout(Uneven(["up"] * 3), concurrency=1), jobs(6))
    many = run(rollout(Uneven(["up"] * 3), concurrency=6), jobs(6))
    assert timeless(one) == timeless(many)


def test_no_jobs_are_no_episodes() -> None:
    assert run(rollout(), []) == []


def test_each_job_runs_in_a_world_of_its_own_kind() -> None:
    async def worlds(id: str) -> AsyncEnvironment:
        return Stairs(name=id)

    kinds = ["a", "b", "a", "b"]
    mixed = [Job(Key("test", i), Task("t", kind, 0)) for i, kind in enumerate(kinds)]
    running = Rollout(DirectAgent(), worlds, {"agent": Counted(["up"] * 3)}, concurrency=1)
    seen = [e.observation.text.split()[3] for e in run(running, mixed) if e.observation]
    assert seen == kinds


# ── faults ───────────────────────────────────────────────────────────────────


class Fragile(Stairs):
    """Breaks for good at the tasks of certain seeds."""

    seeds: frozenset[int] = frozenset()
    broken = False

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.broken = self.broken or task.seed in self.seeds
        return await super().reset(task)

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        if self.broken:
            raise EnvironmentFault("crash", "the stairs gave way")
        return await super().step(action)


def fragile(*broken: int) -> type[AsyncEnvironment]:
    seeds = frozenset(TASKS.task(Split.TEST, i).seed for i in broken)
    return type("Fragile", (Fragile,), {"seeds": seeds})


def test_a_crashed_world_costs_nothing_else(store: Database) -> None:
    episodes = run(rollout(world=fragile(1, 4), concurrency=2, store=store), jobs(8))
    owners = [episode.outcome.owner for episode in episodes]
    assert [i for i, owner in enumerate(owners) if owner is Owner.ENVIRONMENT] == [1, 4]
    assert sum(episode.outcome.solved for episode in episodes) == 6
    assert store.episodes("test") == episodes


def test_a_crashed_agent_costs_only_its_episode() -> None:
    class Nervous(DirectAgent):
        async def run(self, session: Session) -> None:
            if session.task.id == "test/2":
                raise RuntimeError("stage fright")
            await super().run(session)

    episodes = run(rollout(agent=Nervous()), jobs(5))
    assert [episode.outcome.owner for episode in episodes].count(Owner.AGENT) == 1
    assert sum(episode.outcome.solved for episode in episodes) == 4


def test_a_world_that_cannot_be_made_costs_only_its_episode() -> None:
    tries = iter(range(10))

    async def worlds(id: str) -> AsyncEnvironment:
        if next(tries) == 0:
            raise EnvironmentFault("crash", "no room")
        return Stairs()

    running = Rollout(DirectAgent(), worlds, {"agent": Counted(["up"] * 3)}, concurrency=1)
    episodes = run(running, jobs(4))
    assert str(episodes[0].outcome) == "error(crash, environment)"
    assert episodes[0].observation is None
    assert all(episode.outcome.solved for episode in episodes[1:])


def test_a_mistake_in_the_set_up_reaches_the_caller_as_it_is() -> None:
    async def worlds(id: str) -> AsyncEnvironment:
        raise InputError("There is no world 'stairs'.")

    with pytest.raises(InputError, match="no world 'stairs'"):
        run(Rollout(DirectAgent(), worlds, {"agent": Counted(["up"])}), jobs(3))


@pytest.mark.parametrize(("broken", "stops"), [(2, False), (3, True)])
def test_a_run_whose_episodes_mostly_break_is_stopped(broken: int, stops: bool) -> None:
    running = rollout(world=fragile(*range(broken)))
    if not stops:
        assert len(run(running, jobs(4))) == 4
        return
    with pytest.raises(TooManyFaults, match=r"3 of 4 episodes .* the stairs gave way"):
        run(running, jobs(4))


def test_a_stopped_run_resumes_once_the_cause_is_fixed(store: Database) -> None:
    with pytest.raises(TooManyFaults):
        run(rollout(world=fragile(0, 1, 2), store=store), jobs(4))
    model = Counted(["up"] * 3, renderer=renderer())
    fixed = run(rollout(model, store=store), jobs(4))
    assert all(episode.outcome.solved for episode in fixed)
    assert store.episodes("test") == fixed
    assert model.asked == 3 * 2  # each broken episode had its first reply; the fourth stood


# ── stored episodes do not run again ─────────────────────────────────────────


def test_finished_episodes_are_kept(store: Database) -> None:
    first = run(rollout(store=store), jobs(3))
    model = Counted(["up"] * 3, renderer=renderer())
    again = run(rollout(model, store=store), jobs(5))
    assert again[:3] == first and model.asked == 3 * 2


def test_only_infrastructure_errors_run_again_and_resume_where_they_stopped(
    store: Database,
) -> None:
    class Unreliable(Counted):
        """Fails once, at the second reply of one task."""

        async def generate(self, prompt: Prompt) -> Generation:
            if self.asked == 4:
                self.asked += 1
                raise InfrastructureFault("model", "connection lost")
            return await super().generate(prompt)

    unreliable = Unreliable(["up"] * 3, renderer=renderer())
    running = rollout(unreliable, world=fragile(3), concurrency=1, store=store)
    first = run(running, jobs(5))
    assert [episode.outcome.owner for episode in first] == [
        None,
        Owner.INFRASTRUCTURE,
        None,
        Owner.ENVIRONMENT,
        None,
    ]
    model = Counted(["up"] * 3, renderer=renderer())
    again = run(rollout(model, store=store), jobs(5))
    assert again[1].outcome.solved and model.asked == 2  # its first reply was recorded
    assert [again[i] for i in (0, 2, 3, 4)] == [first[i] for i in (0, 2, 3, 4)]
    assert store.episodes("test") == again


@pytest.mark.parametrize("cut", range(13))
def test_a_run_killed_after_any_event_ends_as_if_it_had_not_been(tmp_path: Path, cut: int) -> None:
    undisturbed = run(rollout(), jobs(2))
    events = sum(len(e.calls) + len(e.steps) for e in undisturbed)
    assert events == 12
    killed = Cutting.open(tmp_path / "run.db")
    assert isinstance(killed, Cutting)
    killed.left = cut
    model = Counted(["up"] * 3, renderer=renderer())
    with contextlib.suppress(Killed):
        run(rollout(model, store=killed), jobs(2))
    killed.close()
    store = Database.open(tmp_path / "run.db")
    episodes = run(rollout(model, store=store), jobs(2))
    assert timeless(episodes) == timeless(undisturbed)
    assert store.episodes("test") == episodes
    assert model.asked <= 6 + 2  # at most the reply in flight of each session is asked for again
    store.close()


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_an_interrupted_episode_whose_world_has_changed_starts_over(
    tmp_path: Path, cut: int
) -> None:
    killed = Cutting.open(tmp_path / "run.db")
    assert isinstance(killed, Cutting)
    killed.left = cut
    with pytest.raises(Killed):
        run(rollout(store=killed), jobs(1))
    killed.close()

    class Ladder(Stairs):
        def __init__(self) -> None:
            super().__init__(height=2, name="rung")

    store = Database.open(tmp_path / "run.db")
    model = Counted(["up"] * 3, renderer=renderer())
    (episode,) = run(rollout(model, world=Ladder, store=store), jobs(1))
    assert episode.outcome.solved and len(episode.steps) == 2
    assert model.asked == 3  # once whether the prompt that was not recorded is too long
    assert store.episodes("test") == [episode]
    assert len(store.past(episode.key)) == 4  # nothing of the first attempt is left
    store.close()


def test_an_interrupted_episode_that_now_ends_earlier_starts_over(tmp_path: Path) -> None:
    killed = Cutting.open(tmp_path / "run.db")
    assert isinstance(killed, Cutting)
    killed.left = 4
    with pytest.raises(Killed):
        run(rollout(store=killed), jobs(1))
    killed.close()

    class Resigned(Agent):
        name = "resigned"

        async def run(self, session: Session) -> None:
            pass

    store = Database.open(tmp_path / "run.db")
    (episode,) = run(rollout(agent=Resigned(), store=store), jobs(1))
    assert str(episode.outcome) == "failure" and not episode.calls
    assert store.episodes("test") == [episode] and store.past(episode.key) == []
    store.close()
