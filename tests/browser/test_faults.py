"""Browsers crash, pages hang and loop: each episode ends, or is a fault with its reason."""

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
from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Owner
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.store.database import Database
from tests.browser import faulty_pages
from tests.browser.needed import browser_missing, without_miniwob
from tests.processes import children_with

if why := browser_missing() or without_miniwob():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.slow

AFFLICTED, HEALTHY, TURNS = 72, 8, 8
IDS = ("miniwob/click-button", "miniwob/enter-text", "miniwob/click-tab", "web/easy:browser")


def jobs(ids: list[str], prefix: str = "", first: int = 0) -> list[Job]:
    """Return one task of each id, all different; a prefix does not change the tasks."""
    return [
        Job(
            Key("faults", first + number),
            replace(
                registry.tasks(id).task(Split.TRAIN, first + number), environment=f"{prefix}{id}"
            ),
        )
        for number, id in enumerate(ids)
    ]


def roll_out(wanted: list[Job], store: Database | None) -> tuple[list[Episode], int, int]:
    """Return random episodes, how many workers were replaced, and how many were added."""

    async def run() -> tuple[list[Episode], int, int]:
        async with WorkerPool(2, 60.0) as pool:
            agent = DirectAgent()
            rollout = Rollout(
                agent,
                pool.make,
                {"agent": RandomModel(agent)},
                budget=Budget(turns=TURNS),
                concurrency=12,
                store=store,
            )
            return await rollout.run(wanted), pool.restarts, len(pool._handles) - 2

    return asyncio.run(run())


def shown(episode: Episode) -> tuple[object, ...]:
    steps = [(step.action, step.transition) for step in episode.steps]
    return (episode.observation, steps, episode.outcome)


def test_one_step_in_ten_breaks_and_no_episode_is_unaccounted(tmp_path: Path) -> None:
    rng = random.Random(1)
    healthy = jobs([IDS[n % len(IDS)] for n in range(HEALTHY)])
    prefix = f"{faulty_pages.__name__}:Afflicted/"
    afflicted = jobs([rng.choice(IDS) for _ in range(AFFLICTED)], prefix, HEALTHY)
    wanted = [*healthy, *afflicted]
    rng.shuffle(wanted)
    with closing(Database.open(tmp_path / "run.db")) as store:
        found, restarts, added = roll_out(wanted, store)
        stored = [store.episode(job.key) for job in wanted]
    assert [shown(one) for one in stored if one] == [shown(one) for one in found]
    episodes = {episode.key: episode for episode in found}

    ends: collections.Counter[tuple[str, str]] = collections.Counter()
    for job in afflicted:
        episode = episodes[job.key]
        turns = [sum(one.transition.valid for one in episode.steps[:n]) for n in range(TURNS + 1)]
        ways = [faulty_pages.way_of(job.task.seed, turn) for turn in turns]
        met = {way for way in ways[: len(episode.steps)] if way}  # in steps that came to an end
        assert met == {one.transition.info.get("injected") for one in episode.steps} - {None}
        if not episode.outcome.scored:
            assert episode.outcome.owner is Owner.ENVIRONMENT and episode.outcome.detail
            last = ways[len(episode.steps)]
            assert met or last, episode.outcome.detail  # a fault was injected
            met.add(last)
        ends.update((way, episode.outcome.kind or "ended") for way in met if way)
    for (way, end), count in sorted(ends.items()):
        print(f"{way:10} {end:8} {count}")
    print(f"{restarts} workers replaced, {added} added")
    assert {way for way, _ in ends} == {*faulty_pages.WAYS}
    assert ("browser", "crash") in ends and ("page", "crash") in ends and ("hang", "hang") in ends
    assert restarts and not added

    alone, *_ = roll_out(healthy, None)
    assert [shown(episodes[job.key]) for job in healthy] == [shown(one) for one in alone]
    assert not children_with("palaestra.rollout.worker")
