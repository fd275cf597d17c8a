"""Worlds of many families on two workers: all at once, and with every kind of fault among them."""

from __future__ import annotations

import asyncio
import collections
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Owner
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.store.database import Database
from tests.processes import children_with
from tests.rollout import faulty

pytestmark = pytest.mark.slow

FAMILIES = (
    "babyai/GoToLocalS5N2",
    "crafter/collect_wood",
    "gymnasium/CliffWalking-v1",
    "minigrid/DoorKey-5x5",
    "openspiel/tic_tac_toe",
    "pettingzoo/tictactoe",
    "probe/memory-8",
    "textworld/treasure-easy",
)
TURNS = 15
MEMORY = 2 * 2**30  # bytes of a worker with all that it hosts


def jobs(ids: list[str]) -> list[Job]:
    """One task of each id, all different; what afflicts a world does not change its tasks."""
    plain = [id.rpartition(":Afflicted/")[2] for id in ids]
    found = []
    for number, (id, known) in enumerate(zip(ids, plain, strict=True)):
        task = registry.tasks(known).task(Split.TRAIN, number)
        found.append(Job(Key("mixed", number), replace(task, environment=id)))
    return found


def roll_out(jobs: list[Job], store: Database | None, **pool: float) -> tuple[list[Episode], int]:
    """Return random episodes in all environments at once, and the number of replaced workers."""

    async def run_episode() -> tuple[list[Episode], int]:
        async with WorkerPool(2, pool.get("timeout", 60.0), MEMORY) as workers:

            async def world(id: str) -> AsyncEnvironment:
                return await workers.make(id)

            agent = DirectAgent()
            rollout = Rollout(
                agent,
                world,
                {"agent": RandomModel(agent)},
                budget=Budget(turns=TURNS),
                concurrency=len(jobs),
                store=store,
            )
            return await rollout.run(jobs), workers.restarts

    return asyncio.run(run_episode())


def shown(episode: Episode) -> tuple[object, ...]:
    """The content of an episode, independent of time and process."""
    steps = [(step.action, step.transition) for step in episode.steps]
    return (episode.observation, steps, episode.outcome)


def test_256_worlds_of_eight_families_step_together() -> None:
    wanted = jobs([FAMILIES[n % len(FAMILIES)] for n in range(256)])
    episodes, restarts = roll_out(wanted, None)
    assert len(episodes) == 256 and restarts == 0
    assert all(episode.outcome.scored and episode.steps for episode in episodes)
    some = random.Random(1).sample(range(256), 24)
    alone, _ = roll_out([wanted[n] for n in some], None)
    assert [shown(episode) for episode in alone] == [shown(episodes[n]) for n in some]
    assert not children_with("palaestra.rollout.worker")


def test_one_faulty_step_in_ten_loses_no_episode(tmp_path: Path) -> None:
    quick = [id for id in FAMILIES if not id.startswith("crafter")]  # its reset takes a second
    healthy = [quick[n % len(quick)] for n in range(64)]
    afflicted = [f"{faulty.__name__}:Afflicted/{id}" for id in healthy[:40]]
    wanted = jobs([*healthy, *afflicted])
    with closing(Database.open(tmp_path / "run.db")) as store:
        episodes, restarts = roll_out(wanted, store, timeout=6.0)
        kept = [store.episode(job.key) for job in wanted]
    assert [shown(episode) for episode in kept if episode] == [shown(e) for e in episodes]
    untouched, _ = roll_out(wanted[:64], None)
    assert [shown(e) for e in episodes[:64]] == [shown(e) for e in untouched]
    ends = collections.Counter(e.outcome.kind for e in episodes[64:] if not e.outcome.scored)
    assert {"crash", "hang", "rubbish", "memory"} <= set(ends) and restarts >= 3
    for episode in episodes[64:]:
        broken = not episode.outcome.scored
        assert not broken or episode.outcome.owner is Owner.ENVIRONMENT
        assert len(episode.calls) == len(episode.steps) + broken
