"""From an episode to rewards: what is not known earns nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.loop.batch import trajectories
from tests.learning.made import call, episode

PROGRESS = Shaping(10, {"outcome": 1.0, "progress": 2.0}, {"outcome": {"turn_cost": 0.0}})


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


@pytest.mark.parametrize("given", ["reward", "progress"])
def test_an_imported_reward_that_is_no_number_is_refused_by_name(given: str) -> None:
    """In a running environment this is its error; an import never reports it."""
    nan = float("nan")
    made = walked([0.0, nan if given == "progress" else 0.5, 1.0])
    if given == "reward":
        first = made.steps[0]
        broken = replace(first, transition=replace(first.transition, reward=nan))
        made = replace(made, steps=(broken, *made.steps[1:]))
    shaping = replace(PROGRESS, weights={**PROGRESS.weights, "environment": 1.0})
    term = "environment" if given == "reward" else "progress"
    where = rf"rl/1/0\.0 \(made\): the reward term '{term}' is nan at step 0"
    with pytest.raises(InputError, match=where):
        trajectories([made], shaping, "policy")


def test_a_reward_that_is_not_read_may_be_anything() -> None:
    made = walked([0.0, 0.5, 1.0])
    steps = [replace(s, transition=replace(s.transition, reward=float("nan"))) for s in made.steps]
    (found,) = trajectories([replace(made, steps=tuple(steps))], PROGRESS, "policy")
    assert [turn.reward for turn in found.turns] == [1.0, 1.0]


# ── several players ──────────────────────────────────────────────────────────


def game(*moves: tuple[str, dict[str, float]]) -> Episode:
    """A game: the player of each move, and the rewards of all players."""
    steps = [
        Step(k, k, Action("go"), Transition(Observation("…"), rewards=given), Signals(turn=mover))
        for k, (mover, given) in enumerate(moves)
    ]
    calls = [replace(call(k, None, [1], [2]), role=mover) for k, (mover, _) in enumerate(moves)]
    won = Outcome.success() if moves[-1][1].get("white", 0) > 0 else Outcome.failure()
    return replace(episode(calls, outcome=won, turns=len(moves)), steps=tuple(steps))


def test_of_several_players_each_has_an_outcome_and_the_rollout_the_first_one_s() -> None:
    lost = game(("white", {"white": 0.0, "black": 0.0}), ("black", {"white": -2.0, "black": 2.0}))
    found = Shaping(10, options={"outcome": {"turn_cost": 0.5}}).trajectory(lost, "policy")
    assert found.outcomes == {"white": -2.0, "black": 2.0}
    assert found.outcome == -2.0 and not found.success
    punished = Shaping(
        10, {"outcome": 1.0, "overlong": 1.0}, {"overlong": {"limit": 4, "buffer": 4}}
    )
    lengthy = replace(lost, usage=replace(lost.usage, sampled_tokens=2))
    assert punished.trajectory(lengthy, "policy").outcomes == {"white": -2.5, "black": 1.5}


def test_a_game_that_ended_before_anybody_was_given_anything_is_worth_nothing_to_each() -> None:
    found = PROGRESS.trajectory(game(("white", {}), ("black", {})), "policy")
    assert found.outcomes == {"white": 0.0, "black": 0.0} and found.outcome == 0
