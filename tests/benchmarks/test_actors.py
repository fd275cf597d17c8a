"""A message costs the same among few and among many, counted in instructions of Python."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments.channels.talking import Messages
from palaestra.rollout.guarded_environment import LocalEnvironment

FEW, MANY = 20, 50


def talk(size: int) -> Episode:
    """Let a group of that size live its episode in this process."""
    import actors

    town = getattr(actors, f"Town{size}")
    session = Session(
        Key("test", 0),
        town.tasks("town").task(Split.TRAIN, 0),
        LocalEnvironment(Messages(town(), "all")),
        actors.Actors(),
        {},
    )
    return asyncio.run(session.run())


def instructions_of(work: Callable[[], Episode]) -> float:
    """Return how many instructions of palaestra's own code ran for each step of an episode."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if "palaestra" not in frame.f_code.co_filename:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        episode = work()
    finally:
        sys.settrace(before)
    assert episode.outcome.solved
    return count / len(episode.steps)


def test_the_cost_of_a_step_does_not_grow_with_the_number_of_players() -> None:
    few, many = (instructions_of(lambda size=size: talk(size)) for size in (FEW, MANY))
    assert many < 1.1 * few


@pytest.mark.slow
def test_actors_are_recorded_and_a_repetition_leaves_the_same_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    import actors

    first, again = (actors.once(40, 20, workers) for workers in (0, 1))
    assert first["messages"] == 800 and first["digest"] == again["digest"]
