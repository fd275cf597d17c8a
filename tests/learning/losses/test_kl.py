"""KL estimators: published numbers, and what their values and gradients mean on average.

Exact divergences from a teacher: by hand.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError, UnknownName
from palaestra.learning.losses.kl import (
    Divergence,
    Estimator,
    distillation,
    forward_kl,
    in_reward,
    k1,
    k2,
    k3,
    k3_plus,
    k3_weighted,
    penalty,
    reverse_kl,
)
from palaestra.learning.losses.kl import divergence as exact_divergence
from tests.learning.losses.made import fp64
from tests.learning.losses.made import tokens as made_tokens

numbers = st.floats(-5, 0)
near = st.floats(-2.5, 0)  # differences of them are within the bounds of k3
logits = st.lists(st.floats(-0.9, 0.9), min_size=4, max_size=4).map(fp64)  # and so are these


def value(estimator, lp, lp_ref, lp_old=-1.0):
    return float(penalty(estimator, fp64([lp]), fp64([lp_ref]), fp64([lp_old])))


def slope(estimator, lp, lp_ref, lp_old):
    now = fp64([lp]).requires_grad_()
    penalty(estimator, now, fp64([lp_ref]), fp64([lp_old])).sum().backward()
    return float(now.grad)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", 0.2), ("k2", 0.02), ("k3", 0.01873), ("k3+", 0.01873), ("k3-weighted", 0.01873)],
)
def test_the_published_numbers(estimator, expected):
    assert value(estimator, -1.0, -1.2) == pytest.approx(expected, abs=5e-6)


def test_the_weighted_estimate_carries_the_importance_ratio():
    assert value("k3-weighted", -1.0, -1.2, lp_old=-1.3) == pytest.approx(
        0.0187308 * 1.3498588, abs=1e-6
    )


@given(lp=numbers, lp_ref=numbers)
def test_k3_is_never_negative_and_zero_only_where_equal(lp, lp_ref):
    assert value("k3", lp, lp_ref) >= -1e-12
    assert value("k3", lp, lp) == 0
    assert value("k3", lp, lp + 0.5) > 0.1


@pytest.mark.parametrize("difference", [-30.0, -20.0, -4.0, 12.0, 30.0])
def test_one_token_cannot_drown_the_others(difference):
    """verl's bounds: without them, the estimate of one token reaches 5e8."""
    assert value("k3", difference, 0.0) == 10
    assert slope("k3", difference, 0.0, difference) == 0
    assert value("k3+", difference, 0.0) == 10
    assert slope("k3+", difference, 0.0, difference) == difference
    assert value("k3-weighted", difference, 0.0, lp_old=difference) == 10


@pytest.mark.parametrize("difference", [-2.6, 10.9])
def test_within_its_bounds_k3_is_as_published(difference):
    expected = math.exp(-difference) + difference - 1
    assert value("k3", difference, 0.0) == pytest.approx(expected) and expected < 10
    assert slope("k3", difference, 0.0, difference) == pytest.approx(1 - math.exp(-difference))


@given(lp=near, lp_ref=near)
def test_the_gradients_differ_as_stated(lp, lp_ref):
    d = lp - lp_ref
    assert slope("k1", lp, lp_ref, lp) == 1
    assert slope("k2", lp, lp_ref, lp) == pytest.approx(d)
    assert slope("k3", lp, lp_ref, lp) == pytest.approx(1 - float(fp64(-d).exp()), abs=1e-9)
    assert slope("k3+", lp, lp_ref, lp) == pytest.approx(d)
    assert slope("k3-weighted", lp, lp_ref, lp) == pytest.approx(d, abs=1e-9)


def mean_and_gradient(estimator, theta, reference, old=None):
    """Exact mean over sampled tokens of the estimate, and of its gradient in the logits."""
    theta = theta.clone().requires_grad_()
    lp, lp_ref = theta.log_softmax(0), reference.log_softmax(0)
    lp_old = (theta if old is None else old).detach().log_softmax(0)
    mean = (lp_old.exp() * penalty(estimator, lp, lp_ref, lp_old)).sum()
    mean.backward()
    return float(mean.detach()), theta.grad


def divergence(theta, reference):
    theta = theta.clone().requires_grad_()
    lp, lp_ref = theta.log_softmax(0), reference.log_softmax(0)
    kl = (lp.exp() * (lp - lp_ref)).sum()
    kl.backward()
    return float(kl.detach()), theta.grad


@given(theta=logits, reference=logits)
def test_k1_and_k3_have_the_mean_of_the_kl(theta, reference):
    expected, _ = divergence(theta, reference)
    for estimator in ("k1", "k3", "k3+", "k3-weighted"):
        assert mean_and_gradient(estimator, theta, reference)[0] == pytest.approx(
            expected, abs=1e-9
        )


@given(theta=logits, reference=logits)
def test_k2_and_its_kin_have_the_gradient_of_the_kl_and_k1_has_none(theta, reference):
    _, expected = divergence(theta, reference)
    for estimator in ("k2", "k3+", "k3-weighted"):
        found = mean_and_gradient(estimator, theta, reference)[1]
        assert torch.allclose(found, expected, atol=1e-9)
    nothing = mean_and_gradient("k1", theta, reference)[1]
    assert torch.allclose(nothing, torch.zeros(4, dtype=torch.float64), atol=1e-9)


def test_k3_as_a_loss_is_biased():
    theta, reference = fp64([3.0, 0.0, 0.0, 0.0]), fp64([0.0, 0.0, 0.0, 0.0])
    _, expected = divergence(theta, reference)
    found = mean_and_gradient("k3", theta, reference)[1]
    assert float((found - expected).abs().max()) > 0.05


@given(theta=logits, reference=logits, old=logits)
def test_the_weighted_estimate_is_right_on_tokens_of_older_weights_too(theta, reference, old):
    expected = divergence(theta, reference)
    found = mean_and_gradient("k3-weighted", theta, reference, old)
    assert found[0] == pytest.approx(expected[0], abs=1e-9)
    assert torch.allclose(found[1], expected[1], atol=1e-9)


def test_the_functions_are_what_their_names_say():
    lp, lp_ref, lp_old = fp64([-1.0, -2.0]), fp64([-1.2, -0.5]), fp64([-1.3, -2.0])
    direct = {
        Estimator.K1: k1(lp, lp_ref),
        Estimator.K2: k2(lp, lp_ref),
        Estimator.K3: k3(lp, lp_ref),
        Estimator.K3_PLUS: k3_plus(lp, lp_ref),
        Estimator.K3_WEIGHTED: k3_weighted(lp, lp_ref, lp_old),
    }
    for estimator in Estimator:
        assert torch.equal(penalty(estimator, lp, lp_ref, lp_old), direct[estimator])


@pytest.mark.parametrize("estimator", list(Estimator))
def test_absurd_differences_stay_finite(estimator):
    lp = fp64([-1000.0, 0.0]).requires_grad_()
    found = penalty(estimator, lp, fp64([0.0, -1000.0]), fp64([0.0, -1000.0]))
    found.sum().backward()
    assert bool(torch.isfinite(found).all())
    assert bool(torch.isfinite(lp.grad).all())


def test_an_unknown_estimator_is_named():
    with pytest.raises(UnknownName, match="k4"):
        value("k4", -1.0, -1.0)


def test_kl_in_the_reward_is_taken_off_token_by_token():
    found = in_reward([0.0, 1.0], [-1.0, -0.5], [-1.2, -0.4], beta=0.5)
    assert found == pytest.approx([-0.1, 1.05])


@given(st.lists(numbers, min_size=1, max_size=5), st.floats(-1, 1))
def test_kl_in_the_reward_changes_nothing_where_the_policies_agree(lp, reward):
    assert in_reward([reward] * len(lp), lp, lp, beta=0.3) == [reward] * len(lp)


# ── exact divergences ────────────────────────────────────────────────────────

HALF, MOST = fp64([[0.5, 0.25, 0.25]]).log(), fp64([[0.8, 0.1, 0.1]]).log()


def test_divergences_by_hand():
    given = 0.8 * math.log(0.8 / 0.5) + 2 * 0.1 * math.log(0.1 / 0.25)
    back = 0.5 * math.log(0.5 / 0.8) + 2 * 0.25 * math.log(0.25 / 0.1)
    assert float(forward_kl(HALF, MOST)) == pytest.approx(given)
    assert float(reverse_kl(HALF, MOST)) == pytest.approx(back)
    assert float(exact_divergence(Divergence.FORWARD, HALF + 3, MOST - 1)) == pytest.approx(given)
    assert float(exact_divergence(Divergence.REVERSE, HALF, MOST)) == pytest.approx(back)


def test_the_gradients_of_divergences_by_hand():
    student = HALF.clone().requires_grad_()
    (grad,) = torch.autograd.grad(forward_kl(student, MOST).sum(), student)
    torch.testing.assert_close(grad, fp64([[0.5 - 0.8, 0.25 - 0.1, 0.25 - 0.1]]))
    (grad,) = torch.autograd.grad(reverse_kl(student, MOST).sum(), student)
    p, q = HALF.exp(), MOST.exp()
    torch.testing.assert_close(grad, p * ((p / q).log() - reverse_kl(HALF, MOST)))


@given(student=logits, teacher=logits)
def test_divergences_are_never_negative_and_zero_only_where_equal(student, teacher):
    for found in (forward_kl, reverse_kl):
        assert float(found(student, teacher)) >= -1e-12
        assert float(found(teacher, teacher)) == pytest.approx(0, abs=1e-12)
        if float((student - teacher).std()) > 1e-2:
            assert float(found(student, teacher)) > 0


def test_the_loss_of_distillation_is_the_divergence_where_there_is_one():
    tokens = made_tokens([-1.0, -2.0], [-1.0, -2.0])
    with pytest.raises(InputError, match="needs the divergence from a teacher"):
        distillation(tokens)
    found = fp64([0.1, 0.2])
    assert distillation(replace(tokens, divergence=found)) is found
