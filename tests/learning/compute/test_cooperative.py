"""Cooperative scheduling: work at once, or interleaved with the sampler."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from palaestra.learning.compute.cooperative import interleave, run_to_end


def chunks(turns: list[str]) -> Generator[None, None, str]:
    for _ in range(3):
        turns.append("learner")
        yield
    return "done"


def test_whole_runs_to_the_end() -> None:
    turns: list[str] = []
    assert run_to_end(chunks)(turns) == "done"
    assert turns == ["learner"] * 3


def test_learner_and_sampler_take_turns() -> None:
    """While the sampler is busy, it gets as much time as the learner's chunks took."""
    turns: list[str] = []

    async def sampler() -> None:
        while len(turns) < 6:
            turns.append("sampler")
            await asyncio.sleep(0)

    async def run() -> str:
        acting = asyncio.ensure_future(sampler())
        result = await interleave(chunks(turns), lambda: not acting.done())
        await acting
        return result

    assert asyncio.run(run()) == "done"
    assert turns[:4].count("sampler") >= 1
