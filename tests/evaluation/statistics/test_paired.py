"""Paired tests: as scipy and statsmodels compute them, symmetric, and rarely wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import mean_interval
from palaestra.evaluation.statistics.paired import (
    clustered_mean,
    flips,
    mcnemar,
    permutation_test,
)

counts = st.integers(0, 400)
scores = st.lists(st.tuples(*[st.integers(0, 4).map(lambda k: k / 4)] * 2), min_size=1, max_size=40)


# ── McNemar ──────────────────────────────────────────────────────────────────


@given(counts, counts)
def test_mcnemar_is_scipys_binomial_test_of_the_flips(gained: int, lost: int) -> None:
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, rel=1e-7)


@given(counts, counts)
def test_mcnemar_is_symmetric_and_a_probability(gained: int, lost: int) -> None:
    assert mcnemar(gained, lost) == mcnemar(lost, gained)
    assert 0 < mcnemar(gained, lost) <= 1


@given(counts, st.integers(0, 200))
def test_flips_further_apart_are_more_surprising(gained: int, more: int) -> None:
    assert mcnemar(gained + more + 1, gained) <= mcnemar(gained + more, gained) + 1e-12


def test_mcnemar_agrees_with_statsmodels() -> None:
    tables = pytest.importorskip(
        "statsmodels.stats.contingency_tables", reason="a peer to check by"
    )
    for gained, lost in ((0, 6), (3, 11), (40, 25), (7, 7)):
        theirs = tables.mcnemar([[30, lost], [gained, 20]], exact=True).pvalue
        assert mcnemar(gained, lost) == pytest.approx(theirs)


def test_thousands_of_flips_are_no_trouble() -> None:
    assert mcnemar(10_200, 9_800) == pytest.approx(stats.binomtest(10_200, 20_000).pvalue, rel=1e-6)


def test_negative_flips_are_refused() -> None:
    with pytest.raises(InputError, match="are invalid"):
        mcnemar(-1, 3)


# ── permutations ─────────────────────────────────────────────────────────────


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=120))
def test_of_single_trials_the_permutation_test_is_mcnemars(
    both: list[tuple[bool, bool]],
) -> None:
    a, b = zip(*both, strict=True)
    gained = sum(y > x for x, y in both)
    lost = sum(y < x for x, y in both)
    assert permutation_test(a, b) == pytest.approx(mcnemar(gained, lost), rel=1e-7)


def test_the_exact_permutation_test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    for size in (3, 8, 11):
        a, b = rng.random(size), rng.random(size) + 0.2
        theirs = stats.permutation_test(
            (a, b),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        ).pvalue
        assert permutation_test(a, b) == pytest.approx(theirs)


def test_sampled_permutations_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    a = rng.random(60)
    b = a + rng.normal(0.05, 0.2, 60)
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=0,
    ).pvalue
    assert permutation_test(a, b, samples=20_000) == pytest.approx(theirs, abs=0.012)


@settings(max_examples=30)
@given(scores)
def test_the_permutation_test_is_symmetric_and_a_probability(
    both: list[tuple[float, float]],
) -> None:
    a, b = zip(*both, strict=True)
    assert permutation_test(a, b, samples=500) == pytest.approx(permutation_test(b, a, samples=500))
    assert 0 < permutation_test(a, b, samples=500) <= 1
    assert permutation_test(a, a) == 1


def test_a_difference_beyond_all_sampled_swaps_is_still_not_impossible() -> None:
    a = np.random.default_rng(0).random(40)
    b = a + np.linspace(0.5, 1, 40)  # each by another amount, so swaps are sampled
    assert permutation_test(a, b, samples=1000) == 1 / 1001


def test_without_a_difference_few_tests_reject() -> None:
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(400):
        hardness = rng.random(40)
        a = rng.binomial(4, hardness) / 4
        b = rng.binomial(4, hardness) / 4
        rejected += permutation_test(a, b) <= 0.05
    assert rejected / 400 <= 0.05 + 0.03  # the standard error is 1.1 points
    assert rejected > 0


def test_a_permutation_test_of_what_is_no_pair_is_refused() -> None:
    with pytest.raises(InputError, match="same tasks"):
        permutation_test([0.0], [0.0, 1.0])
    with pytest.raises(GroupTooSmall, match="no task"):
        permutation_test([], [])
    with pytest.raises(InputError, match="finite"):
        permutation_test([0.0], [float("nan")])


# ── clusters ─────────────────────────────────────────────────────────────────

clusters = st.lists(
    st.lists(st.integers(0, 3).map(float), min_size=1, max_size=5), min_size=2, max_size=20
)


@settings(max_examples=30)
@given(clusters)
def test_a_clustered_mean_counts_every_value_the_same(values: list[list[float]]) -> None:
    interval = clustered_mean(values, samples=200)
    every = [value for task in values for value in task]
    assert interval.mean == pytest.approx(np.mean(every))
    assert min(every) - 1e-9 <= interval.low <= interval.mean <= interval.high
    assert interval.high <= max(every) + 1e-9
    assert interval.n == len(values)


def test_of_equally_many_values_per_task_it_is_the_bootstrap_over_task_means() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, size=(80, 4)).astype(float)
    ours = clustered_mean(values.tolist())
    theirs = mean_interval(values.mean(axis=1).tolist())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_its_width_is_that_of_statsmodels_cluster_robust_error() -> None:
    api = pytest.importorskip("statsmodels.api", reason="a peer to check by")
    rng = np.random.default_rng(2)
    levels = rng.normal(0, 1, 150)
    sizes = rng.integers(1, 8, 150)
    values = [(levels[i] + rng.normal(0, 0.3, sizes[i])).tolist() for i in range(150)]
    every = np.concatenate([np.array(of) for of in values])
    groups = np.repeat(np.arange(150), sizes)
    fit = api.OLS(every, np.ones(len(every))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    ours = clustered_mean(values)
    assert (ours.high - ours.low) / (2 * 1.96) == pytest.approx(fit.bse[0], rel=0.08)


def test_clustered_intervals_cover_where_ignoring_the_tasks_does_not() -> None:
    rng = np.random.default_rng(3)
    clustered = naive = 0
    for seed in range(200):
        chances = rng.beta(0.5, 0.5, size=50)  # tasks are mostly solved or mostly not
        values = [(rng.random(8) < chance).astype(float).tolist() for chance in chances]
        interval = clustered_mean(values, seed=seed, samples=500)
        flat = mean_interval([v for of in values for v in of], seed=seed, samples=500)
        clustered += interval.low <= 0.5 <= interval.high
        naive += flat.low <= 0.5 <= flat.high
    assert 0.91 <= clustered / 200 <= 0.985
    assert naive / 200 < 0.75


def test_tasks_without_values_are_left_out_and_one_task_is_refused() -> None:
    assert clustered_mean([[1.0], [], [0.0]]).n == 2
    with pytest.raises(GroupTooSmall, match="at least two"):
        clustered_mean([[1.0, 0.0], []])
    with pytest.raises(InputError, match="finite"):
        clustered_mean([[1.0], [float("inf")]])


# ── flips ────────────────────────────────────────────────────────────────────


@given(scores)
def test_flips_reversed_swap_gains_and_losses(
    both: list[tuple[float, float]],
) -> None:
    a = {task: x for task, (x, _) in enumerate(both)}
    b = {task: y for task, (_, y) in enumerate(both)}
    forth, back = flips(a, b), flips(b, a)
    assert (forth.gained, forth.lost, forth.same) == (back.lost, back.gained, back.same)
    assert forth.n == len(both)


def test_tasks_of_only_one_run_do_not_flip() -> None:
    found = flips({0: 0.0, 1: 1.0, 2: 1.0, 9: 1.0}, {0: 1.0, 1: 0.0, 2: 1.0, 8: 1.0})
    assert (found.gained, found.lost, found.same) == ((0,), (1,), (2,))
