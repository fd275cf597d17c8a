"""From an episode to rewards: what is not known earns nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.outcome import Outcome
from palaestra.learning.rewards import Shaping
from tests.learning.made import call, episode

PROGRESS = Shaping(most_turns=10, turn_cost=0.0, invalid_cost=0.0, progress=2.0)


def walked(progress: Sequence[float | None]) -> Episode:
    """An episode whose progress was this before each step, and at the end."""
    steps = [
        Step(k, k, Action("go"), Transition(Observation("went")), Signals(progress=before))
        for k, before in enumerate(progress[:-1])
    ]
    calls = [call(k, None, [1], [2]) for k in range(len(steps))]
    made = episode(calls, outcome=Outcome.failure(), turns=len(steps))
    return replace(made, steps=tuple(steps), progress=progress[-1])


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ([0.0, 0.25, 1.0], [0.5, 1.5]),
        ([0.5, 0.25, 0.5], [-0.5, 0.5]),
        ([0.0, 0.75, None], [1.5, 0.0]),  # unknown at the end: not a fall to nothing
        ([0.0, None, 0.75], [0.0, 0.0]),
    ],
)
def test_progress_is_rewarded_where_it_is_known(
    progress: list[float | None], expected: list[float]
) -> None:
    trajectory = PROGRESS.trajectory(walked(progress), "policy")
    assert [turn.reward for turn in trajectory.turns] == expected
