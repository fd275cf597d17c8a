"""How often intervals hold the truth: as often as they say, over many simulated evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from palaestra.evaluation.statistics.intervals import mean_interval, success_interval, wilson


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("n", [16, 64, 256])
def test_wilsons_interval_covers_any_rate_about_as_often_as_it_claims(
    n: int, confidence: float
) -> None:
    # Not simulated: over all results of n trials, weighted by their probability.
    rates = np.linspace(0.02, 0.98, 97)
    intervals = [wilson(successes, n, confidence) for successes in range(n + 1)]
    lows, highs = (np.array([getattr(i, end) for i in intervals]) for end in ("low", "high"))
    covers = (lows[:, None] <= rates) & (rates <= highs[:, None])
    coverage = (covers * binom.pmf(np.arange(n + 1)[:, None], n, rates)).sum(axis=0)
    assert coverage.mean() == pytest.approx(confidence, abs=0.015)
    assert coverage.min() > confidence - 0.13  # it dips at rates near 0 and 1 of few trials


def test_the_normal_interval_would_not() -> None:
    n, rates = 16, np.linspace(0.02, 0.98, 97)
    found = np.arange(n + 1) / n
    width = 1.96 * np.sqrt(found * (1 - found) / n)
    covers = (np.abs(found[:, None] - rates) <= width[:, None]) * binom.pmf(
        np.arange(n + 1)[:, None], n, rates
    )
    assert covers.sum(axis=0).mean() < 0.88


@pytest.mark.parametrize(("tasks", "repeats"), [(40, 1), (40, 4), (200, 4)])
def test_the_interval_of_success_covers_the_rate_over_all_tasks(tasks: int, repeats: int) -> None:
    rng = np.random.default_rng(tasks + repeats)
    covered, rounds = 0, 150
    for _ in range(rounds):
        chances = rng.beta(0.8, 0.8, size=tasks)
        interval = success_interval((rng.binomial(repeats, chances) / repeats).tolist())
        assert interval is not None
        covered += interval.low <= 0.5 <= interval.high
    assert 0.89 <= covered / rounds <= 0.99  # the standard error is 1.8 points


def test_the_bootstrap_of_a_skewed_measure_covers_its_mean() -> None:
    rng = np.random.default_rng(0)
    covered, rounds = 0, 300
    for seed in range(rounds):
        seconds = rng.exponential(2.0, size=100)
        interval = mean_interval(seconds.tolist(), seed=seed, samples=500)
        covered += interval.low <= 2.0 <= interval.high
    assert 0.89 <= covered / rounds <= 0.97  # skew costs a point or two
