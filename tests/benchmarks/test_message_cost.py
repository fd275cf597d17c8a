"""What the harness does per message of a team, counted in function calls, as those of a turn."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

MOST = 505  # function calls per message, built-in ones included; 500.5 when this was written


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))


def calls_per_message(members: int, few: int, many: int, see: str = "all") -> float:
    """Return the calls of each message after the first `few` of an episode of `many`."""
    from team_messages import ours

    counts = []
    for messages in (few, few, many):  # the first one makes what is made once
        profile = cProfile.Profile()
        profile.enable()
        ours(members, messages, see=see)
        profile.disable()
        counts.append(pstats.Stats(profile).total_calls)
    return (counts[2] - counts[1]) / (many - few)


def test_a_message_makes_no_more_function_calls_than_before() -> None:
    assert calls_per_message(4, 40, 240) < MOST


@pytest.mark.slow
def test_a_message_costs_the_same_after_many_as_after_few() -> None:
    few, many = calls_per_message(4, 40, 140), calls_per_message(4, 340, 440)
    assert many == pytest.approx(few, rel=0.02)


@pytest.mark.slow
def test_a_message_that_nobody_reads_costs_the_same_among_many_as_among_few() -> None:
    few, many = (calls_per_message(n, 64, 256, "own") for n in (4, 64))
    assert many == pytest.approx(few, rel=0.05)
