"""Power: n tasks detect the smallest detectable difference as often as claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.paired import mcnemar
from palaestra.evaluation.statistics.power import (
    detectable,
    fewest_tasks,
    foresight,
    observed_spread,
    pair_spread,
    tasks_needed,
    warning,
)

tasks = st.integers(1, 5000)
spreads = st.floats(0.01, 2)


def test_a_paired_difference_agrees_with_statsmodels() -> None:
    power = pytest.importorskip("statsmodels.stats.power", reason="a peer to check by")
    for n, spread in ((16, 0.7), (256, 0.5)):
        effect = power.NormalIndPower(ddof=0).solve_power(nobs1=n, alpha=0.05, power=0.8, ratio=0)
        assert detectable(n, spread) == pytest.approx(effect * spread, rel=1e-4)


@given(tasks, spreads)
def test_the_tasks_needed_for_what_n_tasks_detect_are_n(n: int, spread: float) -> None:
    assert tasks_needed(detectable(n, spread), spread) in (n, n + 1)


@given(tasks, spreads)
def test_four_times_the_tasks_find_half_the_difference(n: int, spread: float) -> None:
    assert detectable(4 * n, spread) == pytest.approx(detectable(n, spread) / 2)


def test_a_difference_of_that_size_is_found_that_often() -> None:
    rng = np.random.default_rng(0)
    n, rate, rounds = 200, 0.5, 2000
    gain = detectable(n, pair_spread(rate))
    found = 0
    for _ in range(rounds):
        a = rng.random(n) < rate - gain / 2
        b = rng.random(n) < rate + gain / 2
        difference = b.astype(float) - a
        z = difference.mean() / (difference.std(ddof=1) / np.sqrt(n))
        found += abs(z) > 1.96
    assert found / rounds == pytest.approx(0.8, abs=0.035)


def test_pairing_needs_fewer_tasks_the_more_the_runs_have_in_common() -> None:
    alone = detectable(100, pair_spread(0.5))
    assert detectable(100, pair_spread(0.5, 0.75)) == pytest.approx(alone / 2)
    assert pair_spread(0.5, 1) == 0


def test_six_tasks_are_the_fewest_that_can_be_significant() -> None:
    assert fewest_tasks() == 6
    assert mcnemar(6, 0) <= 0.05 < mcnemar(5, 0)
    assert fewest_tasks(0.001) == 11


def test_the_observed_spread_tends_to_the_true_one_and_is_never_zero() -> None:
    rng = np.random.default_rng(0)
    differences = (rng.random(20_000) < 0.5) * 1.0 - (rng.random(20_000) < 0.5)
    assert observed_spread(differences.tolist()) == pytest.approx(pair_spread(0.5), rel=0.02)
    assert observed_spread([0.0] * 5) == observed_spread([1.0] * 5) > 0.3
    assert observed_spread([]) > 0.7


def test_a_warning_says_what_would_be_found_and_what_it_would_take() -> None:
    output = warning([1.0, -1.0] * 8)
    assert output is not None
    assert "16 tasks" in output and "68 points" in output and "about 742 tasks" in output
    assert warning([1.0, -1.0] * 500) is None
    assert warning([1.0, -1.0] * 500, worth=0.01) is not None


@pytest.mark.parametrize("n", range(1, 6))
def test_with_fewer_than_six_tasks_nothing_can_be_said(n: int) -> None:
    output = warning([1.0] * n)
    assert output is not None
    assert "cannot show" in output and "at least 6" in output


def test_the_warned_of_number_of_tasks_would_not_be_warned_of() -> None:
    differences = [1.0, -1.0, 0.0, 0.0] * 25
    assert warning(differences) is not None
    needed = tasks_needed(0.1, observed_spread(differences))
    assert warning(differences * (needed // 100 + 1)) is None


def test_nonsense_is_refused() -> None:
    with pytest.raises(GroupTooSmall):
        detectable(0, 1.0)
    with pytest.raises(InputError, match="spread"):
        detectable(5, -1.0)
    with pytest.raises(InputError, match="probability"):
        detectable(5, 1.0, power=1.0)
    with pytest.raises(InputError, match="difference of 0"):
        tasks_needed(0.0, 1.0)
    with pytest.raises(InputError, match="is invalid"):
        pair_spread(1.5)


def test_the_detectable_difference_is_reported_before_anything_runs() -> None:
    assert "35 points or more" in foresight(32)
    assert "7 points or more" in foresight(800)
    for few in (0, 1, 3):
        assert foresight(few).endswith("can hardly separate two such runs; use more tasks")
