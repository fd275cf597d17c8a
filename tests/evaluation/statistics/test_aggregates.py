"""Aggregates over runs and tasks: as scipy and rliable compute them, with honest intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, trim_mean

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.aggregates import (
    bootstrap,
    interquartile_mean,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    score_table,
)

shapes = st.tuples(st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**32 - 1))


def table(runs: int, tasks: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((runs, tasks)).round(1)


@given(shapes)
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape: tuple[int, int, int]) -> None:
    scores = table(*shape)
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))


@given(shapes)
def test_many_tables_at_once_give_what_each_gives(shape: tuple[int, int, int]) -> None:
    tables = np.stack([table(*shape), 1 - table(*shape)])
    for statistic in (interquartile_mean, mean, median, optimality_gap):
        assert statistic(tables) == pytest.approx([float(statistic(one)) for one in tables])
    profile = performance_profile([0.2, 0.5])
    assert profile(tables).tolist() == [profile(one).tolist() for one in tables]


@given(shapes, st.lists(st.floats(0, 1), min_size=2, max_size=6).map(sorted))
def test_a_profile_falls_with_its_threshold_from_one_towards_zero(
    shape: tuple[int, int, int], thresholds: list[float]
) -> None:
    profile = performance_profile([-0.1, *thresholds, 1.0])(table(*shape))
    assert profile[0] == 1 and profile[-1] == 0
    assert (np.diff(profile) <= 0).all()


def test_aggregates_agree_with_rliable() -> None:
    metrics = pytest.importorskip("rliable.metrics", reason="a peer to check by")
    library = pytest.importorskip("rliable.library", reason="a peer to check by")
    scores = table(5, 12, 0)
    assert interquartile_mean(scores) == pytest.approx(metrics.aggregate_iqm(scores))
    assert mean(scores) == pytest.approx(metrics.aggregate_mean(scores))
    assert median(scores) == pytest.approx(metrics.aggregate_median(scores))
    assert optimality_gap(scores) == pytest.approx(metrics.aggregate_optimality_gap(scores))

    thresholds = np.linspace(0, 1, 6)
    theirs, _ = library.create_performance_profile({"a": scores}, thresholds, reps=10)
    assert performance_profile(thresholds.tolist())(scores) == pytest.approx(theirs["a"])

    def statistics(one: np.ndarray) -> np.ndarray:
        return np.array([metrics.aggregate_iqm(one), metrics.aggregate_mean(one)])

    np.random.seed(0)
    _, bounds = library.get_interval_estimates({"a": scores}, statistics, reps=2000)
    for place, statistic in enumerate((interquartile_mean, mean)):
        (ours,) = bootstrap(scores, statistic)
        assert [ours.low, ours.high] == pytest.approx(bounds["a"][:, place], abs=0.012)


def test_probability_of_improvement_agrees_with_rliable() -> None:
    metrics = pytest.importorskip("rliable.metrics", reason="a peer to check by")
    a, b = table(5, 12, 1), table(4, 12, 2)
    theirs = metrics.probability_of_improvement(a, b)
    assert probability_of_improvement(a, b, samples=10).mean == pytest.approx(theirs)


def test_probability_of_improvement_is_the_mean_of_mann_whitneys_statistic() -> None:
    a, b = table(6, 9, 3), table(5, 9, 4)
    per_task = [
        mannwhitneyu(x, y).statistic / (len(a) * len(b)) for x, y in zip(a.T, b.T, strict=True)
    ]
    found = probability_of_improvement(a, b, samples=200)
    assert found.mean == pytest.approx(np.mean(per_task))
    assert 0 <= found.low <= found.mean <= found.high <= 1
    back = probability_of_improvement(b, a, samples=10)
    assert found.mean + back.mean == pytest.approx(1)


def test_a_method_beats_itself_half_the_time() -> None:
    scores = table(4, 6, 5)
    assert probability_of_improvement(scores, scores, samples=10).mean == 0.5


def test_intervals_over_seeds_cover_the_truth_about_as_often_as_they_claim() -> None:
    # Runs scatter about each task's level; the tasks themselves are fixed.
    rng = np.random.default_rng(0)
    levels = np.linspace(0.1, 0.9, 10)
    covered = 0
    for seed in range(300):
        scores = levels + rng.normal(0, 0.1, size=(10, 10))
        (interval,) = bootstrap(scores, mean, seed=seed, samples=500)
        covered += interval.low <= 0.5 <= interval.high
    # Ten runs: a percentile bootstrap is known to fall a little short of 95 %.
    assert 0.88 <= covered / 300 <= 0.97


def test_of_three_runs_an_interval_promises_too_much() -> None:
    # What the module's docstring warns of: should this ever fail, the warning is out of date.
    rng = np.random.default_rng(0)
    levels, covered = np.linspace(0.1, 0.9, 10), 0
    for seed in range(300):
        scores = levels + rng.normal(0, 0.1, size=(3, 10))
        (interval,) = bootstrap(scores, mean, seed=seed, samples=500)
        covered += interval.low <= 0.5 <= interval.high
    assert 0.75 <= covered / 300 <= 0.9


def test_resampling_tasks_again_widens_the_interval_to_other_tasks() -> None:
    rng = np.random.default_rng(0)
    covered, widths = 0, []
    for seed in range(200):
        scores = rng.random(30) + rng.normal(0, 0.1, size=(3, 30))
        (within,) = bootstrap(scores, mean, samples=300, seed=seed)
        (anew,) = bootstrap(scores, mean, samples=300, seed=seed, resample_tasks=True)
        covered += anew.low <= 0.5 <= anew.high
        widths.append((within.high - within.low) / (anew.high - anew.low))
    assert max(widths) < 1
    assert 0.9 <= covered / 200 <= 0.99


def test_a_table_holds_the_tasks_that_all_runs_share() -> None:
    scores, tasks = score_table([{0: 1.0, 1: 0.5, 2: 0.0}, {2: 1.0, 0: 0.0}])
    assert tasks == [0, 2]
    assert scores.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(GroupTooSmall, match="share no task"):
        score_table([{0: 1.0}, {1: 1.0}])
    with pytest.raises(GroupTooSmall, match="share no task"):
        score_table([])


def test_equal_seeds_give_equal_intervals_and_every_number_has_one() -> None:
    scores = table(4, 5, 6)
    profile = performance_profile([0.25, 0.5, 0.75])
    one, two = bootstrap(scores, profile, samples=100), bootstrap(scores, profile, samples=100)
    assert one == two
    assert [interval.mean for interval in one] == pytest.approx(profile(scores))
    assert {interval.n for interval in one} == {4}


def test_what_cannot_be_known_is_refused() -> None:
    with pytest.raises(GroupTooSmall, match="One run"):
        bootstrap(table(1, 5, 0), mean)
    assert bootstrap(table(1, 5, 0), mean, resample_tasks=True, samples=50)[0].n == 1
    with pytest.raises(GroupTooSmall, match="One run"):
        probability_of_improvement(table(1, 5, 0), table(3, 5, 0))
    with pytest.raises(InputError, match="same tasks"):
        probability_of_improvement(table(3, 5, 0), table(3, 4, 0))
    with pytest.raises(InputError, match="shape"):
        bootstrap([0.0, 1.0], mean)
    with pytest.raises(InputError, match="finite"):
        bootstrap([[0.0, float("nan")], [1.0, 1.0]], mean)
    with pytest.raises(InputError, match="confidence"):
        bootstrap(table(3, 3, 0), mean, confidence=95)
