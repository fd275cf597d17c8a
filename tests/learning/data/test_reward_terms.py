"""Reward terms: what each measures, and how they add up to outcomes and turn rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.core.outcome import Outcome
from palaestra.learning.data.rewards import DEFAULT_WEIGHTS, Shaping
from tests.learning.made import call, episode

MOST = 12  # turns
numbers = st.floats(-2, 2, allow_nan=False)


def acted(
    valid: Sequence[bool],
    rewards: Sequence[float],
    progress: Sequence[float | None],
    solved: bool = True,
) -> Episode:
    """An episode of one step per call; `progress` has the one at the end, too."""
    steps = [
        Step(k, k, Action("go"), Transition(Observation(""), reward=earned, valid=understood),
             Signals(progress=before))
        for k, (understood, earned, before) in enumerate(
            zip(valid, rewards, progress[:-1], strict=True)
        )
    ]  # fmt: skip
    ended = Outcome.success() if solved else Outcome.failure()
    calls = [call(k, None, [1], [2]) for k in range(len(steps))]
    made = episode(calls, outcome=ended, turns=len(steps))
    return replace(made, steps=tuple(steps), progress=progress[-1])


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    n = draw(st.integers(1, MOST))
    known = st.none() | st.floats(0, 1)
    return acted(
        draw(st.lists(st.booleans(), min_size=n, max_size=n)),
        draw(st.lists(numbers, min_size=n, max_size=n)),
        draw(st.lists(known, min_size=n + 1, max_size=n + 1)),
        draw(st.booleans()),
    )


GONE = acted([True, False, True, True], [0.0, 1.0, 0.5, 0.0], [0.0, 0.25, 0.25, 0.5, 1.0])


@pytest.mark.parametrize(
    ("term", "measured"),
    [
        ("outcome", 1 - 0.2 * 4 / MOST),
        ("invalid", 1.0),
        ("environment", 1.5),
        ("progress", 1.0),
        ("format", 3 / 4),
        ("length", 40.0),
        ("overlong", 0.0),
    ],
)
def test_a_term_measures_one_thing(term: str, measured: float) -> None:
    spoken = replace(GONE, usage=replace(GONE.usage, sampled_tokens=40))
    found = Shaping(MOST, {term: -3.0}).measured(spoken)
    assert found == pytest.approx({term: measured})


def test_terms_of_steps_belong_to_turns_and_the_others_to_the_outcome() -> None:
    weights = {"outcome": 2.0, "invalid": -0.5, "progress": 4.0, "format": 1.0}
    found = Shaping(MOST, weights, {"outcome": {"turn_cost": 0.0}}).trajectory(GONE, "policy")
    assert [turn.reward for turn in found.turns] == [1.0, -0.5, 1.0, 2.0]
    assert found.outcome == 2.0 + 0.75


@given(episodes(), numbers, numbers, st.floats(0, 1), numbers)
def test_rewards_are_bit_for_bit_those_of_the_keys_that_terms_replaced(
    made: Episode, invalid: float, environment: float, turn_cost: float, progress: float
) -> None:
    """`turn_cost`, `invalid_cost`, `environment_reward` and `progress_reward`, as they were."""
    outcome = 1.0 - turn_cost * len(made.steps) / MOST if made.outcome.solved else 0.0
    rewards = []
    for step in made.steps:
        reward = 0.0 if step.transition.valid else -invalid
        if environment:
            reward += environment * step.transition.reward
        if progress:
            known = [*(s.before.progress for s in made.steps), made.progress]
            before, after = known[step.index], known[step.index + 1]
            reward += progress * (0.0 if before is None or after is None else after - before)
        rewards.append(reward)
    weights = {"outcome": 1.0, "invalid": -invalid, "environment": environment}
    shaping = Shaping(
        MOST, {**weights, "progress": progress}, {"outcome": {"turn_cost": turn_cost}}
    )
    found = shaping.trajectory(made, "policy")
    assert found.outcome == outcome
    assert [turn.reward for turn in found.turns] == rewards
    assert shaping.episode_return(made) == outcome + sum(rewards) == found.total


@given(episodes(), st.sampled_from(["environment", "progress", "format", "length"]))
def test_a_weight_of_0_measures_and_changes_nothing(made: Episode, term: str) -> None:
    without, logged = Shaping(MOST), Shaping(MOST, {**DEFAULT_WEIGHTS, term: 0.0})
    assert logged.trajectory(made, "policy") == without.trajectory(made, "policy")
    assert logged.measured(made).keys() == {"outcome", "invalid", term}


@given(episodes(), st.permutations(["outcome", "invalid", "environment", "progress", "length"]))
def test_the_order_in_which_terms_are_written_changes_nothing(
    made: Episode, names: list[str]
) -> None:
    weights = {name: 0.1 * len(name) for name in names}
    ordered = {name: weights[name] for name in sorted(names)}
    assert Shaping(MOST, weights).trajectory(made, "policy") == Shaping(MOST, ordered).trajectory(
        made, "policy"
    )


def test_a_score_stands_for_the_outcome_and_the_other_terms_remain() -> None:
    shaping = Shaping(MOST, {"outcome": 2.0, "format": 1.0, "invalid": -1.0})
    assert shaping.outcome(GONE, 0.25) == 0.5 + 0.75
    assert Shaping(MOST).outcome(GONE, 0.3) == 0.3  # bit for bit


def test_terms_and_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnknownName, match="progress"):
        Shaping(MOST, {"progres": 1.0})
    with pytest.raises(RecipeError, match="'outcome' has no option 'cost'"):
        Shaping(MOST, options={"outcome": {"cost": 1}})
    with pytest.raises(RecipeError, match="most_turns"):
        Shaping(MOST, options={"outcome": {"most_turns": 4}})
    with pytest.raises(RecipeError, match="buffer is 5"):
        Shaping(MOST, {"overlong": 1.0}, {"overlong": {"limit": 4, "buffer": 5}})


def test_a_term_that_gives_too_few_numbers_is_refused_by_name() -> None:
    shaping = Shaping(MOST, {"tests.learning.data.test_reward_terms:two_numbers": 1.0})
    with pytest.raises(InputError, match="two_numbers' gave 2 numbers for the 4 steps"):
        shaping.trajectory(GONE, "policy")


def two_numbers(episode: Episode) -> list[float]:
    """Return two numbers, however many steps there were."""
    return [0.0, 0.0]
