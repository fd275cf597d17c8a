"""Intervals: right where an authority is at hand, lawful everywhere, and fair about faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import (
    compare,
    mean_interval,
    paired_difference,
    paired_scores,
    score,
    success_interval,
    task_scores,
    wilson,
)
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, UNPARSED, episode, evaluation

trials = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
rates = st.lists(st.integers(0, 4).map(lambda k: k / 4), min_size=2, max_size=60)
pairs = st.lists(
    st.tuples(st.integers(0, 4).map(lambda k: k / 4), st.integers(0, 4).map(lambda k: k / 4)),
    min_size=2,
    max_size=60,
)


@given(trials, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(trial: tuple[int, int], confidence: float) -> None:
    successes, n = trial
    theirs = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    ours = wilson(successes, n, confidence)
    assert ours.low == pytest.approx(theirs.low, abs=1e-9)
    assert ours.high == pytest.approx(theirs.high, abs=1e-9)


@given(trials)
def test_wilson_lies_within_zero_and_one_and_holds_its_mean(trial: tuple[int, int]) -> None:
    interval = wilson(*trial)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10)])
def test_impossible_counts_are_refused(successes: int, n: int) -> None:
    with pytest.raises(InputError, match="are impossible"):
        wilson(successes, n)


def test_a_rate_of_no_trials_is_refused() -> None:
    with pytest.raises(GroupTooSmall, match="no trials"):
        wilson(0, 0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_outside_zero_and_one_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        wilson(1, 2, confidence)


@given(rates)
def test_a_bootstrap_holds_its_mean_and_stays_within_the_data(values: list[float]) -> None:
    interval = mean_interval(values, samples=500)
    assert interval.mean == pytest.approx(np.mean(values))
    assert min(values) - 1e-9 <= interval.low <= interval.mean
    assert interval.mean <= interval.high <= max(values) + 1e-9


@given(pairs)
def test_a_difference_reversed_is_its_mirror_image(
    both: list[tuple[float, float]],
) -> None:
    a, b = zip(*both, strict=True)
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert forth.mean == pytest.approx(-back.mean)
    # Both bounds are quantiles of 10,000 resamples: equal up to that noise.
    spread = np.std(np.subtract(a, b)) / np.sqrt(len(a))
    assert forth.low == pytest.approx(-back.high, abs=0.25 * spread + 1 / len(a))
    assert forth.high == pytest.approx(-back.low, abs=0.25 * spread + 1 / len(a))


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_does_not_matter(both: list[tuple[float, float]], random) -> None:
    shuffled = list(both)
    random.shuffle(shuffled)
    one = paired_difference(*zip(*both, strict=True), samples=500)
    other = paired_difference(*zip(*shuffled, strict=True), samples=500)
    assert one == other


@given(rates)
def test_a_policy_differs_from_itself_by_exactly_nothing(values: list[float]) -> None:
    interval = paired_difference(values, values, samples=100)
    assert (interval.mean, interval.low, interval.high) == (0, 0, 0)
    assert not interval.above_zero
    assert not interval.below_zero


def test_the_paired_bootstrap_agrees_with_scipys() -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    theirs = bootstrap(
        (a - b,), np.mean, method="percentile", n_resamples=10_000, rng=rng
    ).confidence_interval
    ours = paired_difference(a.tolist(), b.tolist())
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_the_paired_bootstrap_covers_the_true_difference_about_as_often_as_it_claims() -> None:
    rng = np.random.default_rng(0)
    repetitions, tasks, gain = 600, 128, 0.2
    covered = 0
    for seed in range(repetitions):
        hardness = rng.random(tasks) * (1 - gain)
        a = rng.random(tasks) < hardness + gain
        b = rng.random(tasks) < hardness
        interval = paired_difference(
            a.astype(float).tolist(), b.astype(float).tolist(), seed=seed, samples=1000
        )
        covered += interval.low <= gain <= interval.high
    # 95 % of 600 has a standard error of 0.9 points.
    assert 0.92 <= covered / repetitions <= 0.98


def test_equal_seeds_give_equal_intervals() -> None:
    values = [0.0, 0.25, 1.0, 1.0, 0.5]
    assert mean_interval(values, seed=7) == mean_interval(values, seed=7)


def test_pairs_with_a_missing_member_are_left_out() -> None:
    with_gaps = paired_difference([1, None, 1, 0, 1], [0, 1, None, 0, 1])
    assert with_gaps == paired_difference([1, 0, 1], [0, 0, 1])
    assert with_gaps.n == 3


def test_a_difference_of_unequally_many_tasks_is_refused() -> None:
    with pytest.raises(InputError, match="2 and 3 tasks"):
        paired_difference([0, 1], [0, 1, 1])


def test_a_single_pair_gives_no_interval() -> None:
    with pytest.raises(GroupTooSmall, match="at least two"):
        paired_difference([1, None], [0, 1])


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        mean_interval([0.0, float("nan")])


def test_single_trials_get_wilsons_interval_and_repeats_a_bootstrap_over_tasks() -> None:
    assert success_interval([1.0, 0.0, 1.0, None]) == wilson(2, 3)
    assert success_interval([1.0, 0.5, 0.0]) == mean_interval([1.0, 0.5, 0.0])
    assert success_interval([None, None]) is None
    assert success_interval([0.5]) is None


def test_repeats_of_a_task_are_averaged_before_anything_else() -> None:
    episodes = [
        episode("test/rl", 0, SUCCESS),
        episode("test/rl", 0, FAILURE, member=1),
        episode("test/rl", 4, SUCCESS),
    ]
    assert task_scores(episodes) == {0: 0.5, 4: 1.0}


def test_an_environments_error_is_missing_and_an_agents_error_is_a_failure() -> None:
    episodes = [
        episode("test/rl", 0, SUCCESS),
        episode("test/rl", 1, CRASH),
        episode("test/rl", 2, UNPARSED),
    ]
    assert task_scores(episodes) == {0: 1.0, 2: 0.0}
    result = score(episodes)
    assert result.success == wilson(1, 2)
    assert (result.episodes, result.faults) == (3, 1)
    assert result.outcomes == {
        "success": 1,
        "error(crash, environment)": 1,
        "error(unparsed, agent)": 1,
    }


def test_scores_are_paired_by_the_tasks_number() -> None:
    assert paired_scores({0: 1.0, 2: 0.0}, {0: 0.0, 1: 1.0}) == ([1.0, None, 0.0], [0.0, 1.0, None])


def test_turns_and_invalid_actions_count_over_scored_episodes_only() -> None:
    result = score(
        [
            episode("test/rl", 0, SUCCESS, ["a", "b", "c", "d"], invalid=[1]),
            episode("test/rl", 1, FAILURE, ["a", "b"]),
            episode("test/rl", 2, CRASH, ["a"] * 50, invalid=range(50)),
        ]
    )
    assert result.turns == 3
    assert result.invalid_rate == pytest.approx(1 / 6)
    assert result.reward == 0.5


def test_episodes_that_all_broke_have_no_success_rate() -> None:
    assert score([episode("test/rl", 0, CRASH)]).success is None


def test_comparing_policies_pairs_each_with_those_before_it() -> None:
    result = compare(
        {
            "base": evaluation("test/base", 0.2, 100),
            "imitation": [],
            "rl": evaluation("test/rl", 0.7, 100),
        }
    )
    assert list(result.scores) == ["base", "rl"]
    assert list(result.paired) == ["rl_minus_base"]
    gain = result.paired["rl_minus_base"]
    difference = result.success["rl"].mean - result.success["base"].mean
    assert gain.mean == pytest.approx(difference)
    assert gain.above_zero
    assert result.environment == "babyai/GoToLocal"
    assert result.counted == (100, 100)
