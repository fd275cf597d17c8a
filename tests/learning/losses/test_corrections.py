"""Weights for other samplers: the published numbers, levels, bounds and rejections."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.losses.corrections import (
    mis,
    rejection,
    tis,
    veto,
)
from tests.learning.losses.made import weighed

W = [0.4, 0.9, 1.2, 3.0]
ratios = st.lists(st.floats(0.01, 50), min_size=1, max_size=8)


def listed(weight):
    return pytest.approx(weight.tolist(), abs=5e-5)


def kept(ratios_, *, turn=None, rollout=None, **options):
    ids = {"turn": turn, "rollout": rollout}
    return rejection(weighed(ratios_, **ids), **options).tolist()


def test_truncation_cuts_large_weights():
    assert listed(tis(weighed(W), cap=2.0)) == [0.4, 0.9, 1.2, 2.0]


def test_truncation_can_lift_small_weights():
    assert listed(tis(weighed(W), cap=2.0, floor=0.5)) == [0.5, 0.9, 1.2, 2.0]


def test_truncated_weights_can_be_given_a_mean_of_one():
    found = tis(weighed(W), cap=2.0, normalise=True)
    assert listed(found) == [0.3556, 0.8, 1.0667, 1.7778]
    assert float(found.mean()) == pytest.approx(1)


def test_masking_drops_weights_outside_the_bounds():
    assert listed(mis(weighed(W), low=0.5, high=2.0)) == [0, 0.9, 1.2, 0]


def test_a_rollouts_weight_is_the_product_of_its_ratios():
    assert listed(tis(weighed(W), level="rollout")) == [1.2960] * 4
    assert listed(mis(weighed(W), level="rollout")) == [1.2960] * 4
    assert listed(mis(weighed(W), high=1.29, level="rollout")) == [0.0] * 4


def test_a_turns_weight_is_the_product_of_its_own_ratios():
    found = tis(weighed(W, turn=[0, 0, 1, 1]), level="turn", cap=10)
    assert listed(found) == [0.36, 0.36, 3.6, 3.6]


def test_normalisation_counts_each_unit_once():
    found = tis(weighed([0.5, 2.0, 1.5], turn=[0, 1, 1]), level="turn", cap=10, normalise=True)
    assert listed(found) == [0.5 / 1.75, 3 / 1.75, 3 / 1.75]


@given(ratios)
def test_the_weights_are_those_of_the_definition(w):
    expected = torch.tensor(w, dtype=torch.float64)
    assert torch.allclose(tis(weighed(w)), expected.clamp(max=2), atol=1e-9)
    inside = (expected >= 0.5) & (expected <= 2)
    clear = (expected - 0.5).abs().minimum((expected - 2).abs()) > 1e-6
    assert torch.allclose(mis(weighed(w))[clear], (expected * inside)[clear], atol=1e-9)


@pytest.mark.parametrize(
    ("options", "statistic"),
    [
        ({"estimator": "k1", "reduce": "mean", "low": 0.5}, 1.0670),
        ({"estimator": "k1", "reduce": "sum", "low": 0.5}, 1.2960),
        ({"estimator": "k1", "reduce": "max", "low": 0.3}, 3.0),
        ({"estimator": "k3", "reduce": "mean"}, 0.3102),
        ({"estimator": "k3", "reduce": "sum"}, 1.2407),
        ({"estimator": "k3", "reduce": "max"}, 0.9014),
        ({"estimator": "k2", "reduce": "mean"}, 0.2614),
        ({"estimator": "k2", "reduce": "max"}, 0.6035),
    ],
)
def test_a_rollout_is_rejected_just_below_its_statistic_and_kept_just_above(options, statistic):
    assert kept(W, high=statistic + 1e-4, **options) == [1.0] * 4
    assert kept(W, high=statistic - 1e-4, **options) == [0.0] * 4


def test_geometric_bounds_hold_on_both_sides():
    bounds = {"estimator": "k1", "low": 0.999, "high": 1.001}
    assert kept([1.0005, 1.0005], **bounds) == [1, 1]
    assert kept([1.002, 1.002], **bounds) == [0, 0]
    assert kept([0.998, 0.998], **bounds) == [0, 0]
    assert kept([2.0, 0.5], **bounds) == [1, 1]


def test_a_mean_does_not_reject_for_length_but_a_product_does():
    long = [1.01] * 500
    bounds = {"estimator": "k1", "low": 0.5, "high": 2.0}
    assert set(kept(long, reduce="mean", **bounds)) == {1.0}
    assert set(kept(long, reduce="sum", **bounds)) == {0.0}


def test_tokens_and_turns_can_be_rejected_by_themselves():
    options = {"estimator": "k1", "low": 0.5, "high": 2.0}
    assert kept(W, level="token", **options) == [0, 1, 1, 0]
    found = kept([0.9, 1.1, 1.2, 3.0], turn=[0, 0, 1, 1], level="turn", reduce="max", **options)
    assert found == [1, 1, 0, 0]


def test_one_rollout_is_not_rejected_for_another():
    assert kept([1.0, 1.0, 9.0], rollout=[0, 0, 1]) == [1, 1, 0]


def test_an_impossible_token_vetoes_its_whole_rollout():
    batch = weighed([1.0, 0.9e-4, 1.0, 1.1e-4], rollout=[0, 0, 1, 1])
    assert veto(batch).tolist() == [0, 0, 1, 1]


def test_absurd_ratios_stay_finite():
    batch = weighed([math.exp(-300), math.exp(300)])
    for correction in (tis, mis, rejection, veto):
        for level in ("token", "rollout"):
            assert bool(torch.isfinite(correction(batch, level=level)).all())


@pytest.mark.parametrize(
    ("correction", "options"),
    [
        (tis, {"cap": 0.9}),
        (tis, {"floor": 1.1}),
        (mis, {"low": 1.5, "high": 2.0}),
        (rejection, {"estimator": "k1"}),
        (rejection, {"estimator": "k3", "low": 0.001}),
        (veto, {"threshold": 2.0}),
    ],
)
def test_bounds_that_would_reject_the_policy_itself_are_errors(correction, options):
    with pytest.raises(RecipeError, match="on policy"):
        correction(weighed(W), **options)


@pytest.mark.parametrize(
    ("correction", "options"),
    [
        (tis, {"level": "sentence"}),
        (mis, {"level": "sentence"}),
        (veto, {"level": "sentence"}),
        (rejection, {"estimator": "k4"}),
        (rejection, {"reduce": "median"}),
    ],
)
def test_unknown_names_are_named(correction, options):
    with pytest.raises(UnknownName, match=next(iter(options.values()))):
        correction(weighed(W), **options)
