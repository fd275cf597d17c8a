"""Whole sessions that a remote model acts in: hundreds at once, and once more from the cache."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Owner
from palaestra.core.task import Split, TaskSet
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.remote.response_cache import ResponseCache
from palaestra.rollout.runner import Job, Rollout
from tests.core.small import Stairs
from tests.models.crowded import Crowded, Mood, crowded

TASKS = TaskSet("stairs")


def up_or_down(request: dict[str, Any]) -> str:
    """Nine times out of ten "up"; the same for the same seed."""
    return "up" if request["seed"] % 10 else "fall"


async def world(id: str) -> AsyncEnvironment:
    return Stairs()


async def run_episode(model: RemoteModel, sessions: int) -> list[Episode]:
    jobs = [Job(Key("test", i), TASKS.task(Split.TEST, i)) for i in range(sessions)]
    try:
        rollout = Rollout(DirectAgent(), world, {"agent": model}, concurrency=sessions)
        return await rollout.run(jobs)
    finally:
        await model.close()


def shown(episode: Episode) -> Any:
    """All that does not depend on the clock."""
    return episode.outcome, [(call.reply, call.finish) for call in episode.calls]


@pytest.mark.slow
def test_hundreds_of_sessions_on_a_server_that_bears_eight_lose_nothing() -> None:
    rng = random.Random(1)
    moods: list[Mood] = rng.choices(["good", "error", "drop"], [94, 3, 3], k=5000)

    async def run() -> tuple[Crowded, list[Episode]]:
        options = {"words": up_or_down, "mood": moods.__getitem__, "seconds": 0.03}
        async with crowded(8, **options) as server:
            return server, await run_episode(
                RemoteModel("m", server.url, attempts=10, timeout=20.0), 150
            )

    server, episodes = asyncio.run(run())
    calls = sum(len(episode.calls) for episode in episodes)
    assert len(episodes) == 150
    assert all(episode.outcome.owner is not Owner.INFRASTRUCTURE for episode in episodes)
    assert {episode.outcome.solved for episode in episodes} == {True, False}
    assert server.peak <= 8 and calls < len(server.requests) <= 2 * calls


def test_tokens_count_as_the_server_tells_them() -> None:
    async def run() -> list[Episode]:
        async with crowded(100, words=up_or_down) as server:
            return await run_episode(RemoteModel("m", server.url), 3)

    for episode in asyncio.run(run()):
        assert all(call.sampled > 0 for call in episode.calls)
        assert episode.usage.sampled_tokens == sum(call.sampled for call in episode.calls)
        assert episode.usage.prompt_tokens == sum(call.computed_tokens for call in episode.calls)


@pytest.mark.slow
def test_what_never_answers_is_an_infrastructure_error_of_each_session_it_hits() -> None:
    async def run() -> list[Episode]:
        moods: list[Mood] = ["hang", "rubbish", "drop", "error"]
        options = {"words": up_or_down, "mood": lambda n: moods[n] if n < 4 else "good"}
        async with crowded(100, **options) as server:
            # a busy machine may take a second to answer
            return await run_episode(RemoteModel("m", server.url, attempts=1, timeout=4.0), 20)

    owners = [episode.outcome.owner for episode in asyncio.run(run())]
    assert owners.count(Owner.INFRASTRUCTURE) == 4


def test_a_second_evaluation_with_the_same_cache_sends_nothing(tmp_path: Path) -> None:
    async def run() -> tuple[list[Episode], int, list[Episode], int]:
        async with crowded(100, words=up_or_down) as server:
            counted = []
            for _ in range(2):
                cache = ResponseCache(tmp_path / "answers.db")
                episodes = await run_episode(RemoteModel("m", server.url, cache=cache), 20)
                counted += [episodes, len(server.requests)]
            return tuple(counted)  # type: ignore[return-value]

    first, sent, second, still = asyncio.run(run())
    assert sent == still == sum(len(episode.calls) for episode in first)
    assert list(map(shown, first)) == list(map(shown, second))
