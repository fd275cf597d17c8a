"""Adjusted p-values: as the authorities compute them, and with the error rates they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from palaestra.core.errors import InputError
from palaestra.evaluation.statistics.multiple_testing import benjamini_hochberg, holm

ps = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(ps)
def test_benjamini_and_hochbergs_agree_with_scipy(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(false_discovery_control(p_values))


@pytest.mark.parametrize(("adjust", "name"), [(holm, "holm"), (benjamini_hochberg, "fdr_bh")])
def test_both_agree_with_statsmodels(adjust, name: str) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="a peer to check by")
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        p_values = rng.random(size) ** 3
        theirs = multitest.multipletests(p_values, method=name)[1]
        assert adjust(p_values.tolist()) == pytest.approx(theirs.tolist())


def test_holms_are_those_of_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(ps)
def test_adjusted_values_keep_the_order_and_never_shrink(p_values: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(p_values)
        assert all(p - 1e-12 <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
        in_order = [adjusted[i] for i in sorted(range(len(p_values)), key=lambda i: p_values[i])]
        assert in_order == sorted(in_order)


@given(ps)
def test_holm_is_stricter_than_benjamini_hochberg_and_milder_than_bonferroni(
    p_values: list[float],
) -> None:
    for p, h, bh in zip(p_values, holm(p_values), benjamini_hochberg(p_values), strict=True):
        assert bh - 1e-12 <= h <= min(1, p * len(p_values)) + 1e-12


@given(ps, st.integers(0, 29), st.floats(0, 1))
def test_a_smaller_p_value_raises_no_adjusted_one(
    p_values: list[float], place: int, share: float
) -> None:
    smaller = list(p_values)
    smaller[place % len(p_values)] *= share
    for adjust in (holm, benjamini_hochberg):
        for before, after in zip(adjust(p_values), adjust(smaller), strict=True):
            assert after <= before + 1e-12


def test_error_rates_are_what_is_promised() -> None:
    rng = np.random.default_rng(0)
    rounds, false, true = 1000, 15, 5
    any_false = share_false = 0.0
    for _ in range(rounds):
        p_values = [*rng.random(false), *(rng.random(true) * 0.002)]
        any_false += min(holm(p_values)[:false]) <= 0.05
        rejected = np.array(benjamini_hochberg(p_values)) <= 0.05
        share_false += rejected[:false].sum() / max(1, rejected.sum())
    assert any_false / rounds <= 0.05 + 0.02  # the standard error is 0.7 points
    assert share_false / rounds <= 0.05 + 0.02


def test_no_test_needs_no_correction_and_nonsense_is_refused() -> None:
    assert holm([]) == benjamini_hochberg([]) == []
    for adjust in (holm, benjamini_hochberg):
        with pytest.raises(InputError, match="p-value"):
            adjust([0.5, 1.2])
        with pytest.raises(InputError, match="p-value"):
            adjust([float("nan")])
