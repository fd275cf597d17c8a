"""What the harness does per turn, counted in function calls, which no busy machine changes."""

import cProfile
import pstats
from pathlib import Path

import pytest

MOST = 345  # function calls per turn, built-in ones included; 339 when this was written
SESSIONS, TURNS = 20, 50


def test_a_turn_makes_no_more_function_calls_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    from overhead import ours

    ours(5, 5)  # what is made once
    profile = cProfile.Profile()
    profile.enable()
    ours(SESSIONS, TURNS)
    profile.disable()
    assert pstats.Stats(profile).total_calls / (SESSIONS * TURNS) < MOST
