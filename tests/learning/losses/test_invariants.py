"""Laws that every registered loss and correction obeys.

Where all policies are one, the gradient of every loss is REINFORCE's, -A per token. The
one exception is `loop` per turn or rollout, whose ratio is a product: -A times the number
of tokens of the unit, for the mean over the unit that its aggregation takes.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.learning.losses.policy_loss import unit_of
from palaestra.learning.losses.trained_tokens import unit_ids, unit_sum
from palaestra.learning.methods.component import Kind, components, find
from tests.learning.losses.made import at_rest, batches, fp64, gradient, moved, taken, tokens

FURTHER = [
    ("ppo", {"dual": math.inf}),
    ("loop", {"unit": "turn"}),
    ("loop", {"unit": "rollout"}),
    ("gspo", {"unit": "turn"}),
    ("decoupled", {"mode": "truncate"}),
    ("decoupled", {"approximate": True}),
]
REGULARISED = [
    ("grpo", {"beta": 0.1}),
    ("grpo", {"beta": 0.1, "kl": "k3+"}),
    ("grpo", {"beta": 0.1, "kl": "k3-weighted"}),
    ("gspo", {"beta": 0.1}),
]
PLAIN = [*((name, {}) for name in components(Kind.LOSS)), *FURTHER]
LOSSES = [*PLAIN, *REGULARISED]
CORRECTIONS = [
    *((name, {}) for name in components(Kind.CORRECTION)),
    ("tis", {"level": "turn"}),
    ("tis", {"level": "rollout", "floor": 0.5}),
    ("mis", {"level": "rollout"}),
    ("rejection", {"estimator": "k1", "low": 0.5, "high": 2.0}),
    ("rejection", {"estimator": "k1", "low": 0.5, "high": 2.0, "reduce": "sum"}),
    ("rejection", {"estimator": "k2", "reduce": "max", "level": "turn"}),
    ("rejection", {"level": "token"}),
]

few = settings(max_examples=15)


def named(parts):
    ids = [" ".join([name, *(f"{k}={v}" for k, v in options.items())]) for name, options in parts]
    return pytest.mark.parametrize(("name", "options"), parts, ids=ids)


def loss_of(name, options):
    return find(Kind.LOSS, name).configured(options)


def correction_of(name, options):
    return find(Kind.CORRECTION, name).configured(options)


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def weights_for(batch):
    return fp64(range(1, len(batch.lp) + 1)) / len(batch.lp)


def chunks(ids):
    return [(ids == i).nonzero().squeeze(1) for i in ids.unique()]


def in_chunks(loss, batch, weight, ids):
    """The gradient where each part is a micro-batch of its own."""
    found = torch.zeros_like(batch.lp)
    for chunk in chunks(ids):
        found[chunk] = gradient(loss, taken(batch, chunk), weight[chunk])
    return found


@named(LOSSES)
@few
@given(batch=batches())
def test_losses_and_gradients_are_finite(name, options, batch):
    loss = loss_of(name, options)
    assert bool(torch.isfinite(loss(batch)).all())
    assert bool(torch.isfinite(gradient(loss, batch)).all())
    assert loss(batch).shape == batch.lp.shape


@named(LOSSES)
def test_absurd_ratios_stay_finite(name, options):
    lp, lp_old = [-1000.0, 0.0, 0.0], [0.0, -1000.0, 0.0]
    batch = tokens(lp, lp_old, [-1.0, 1.0, 0.0], lp_ref=lp_old, turn=[0, 1, 2], rollout=[0, 1, 2])
    loss = loss_of(name, options)
    assert bool(torch.isfinite(loss(batch)).all())
    assert bool(torch.isfinite(gradient(loss, batch)).all())


@named(LOSSES)
@few
@given(batch=batches(), data=st.data())
def test_permuting_the_tokens_permutes_losses_and_gradients(name, options, batch, data):
    loss = loss_of(name, options)
    order = torch.tensor(data.draw(st.permutations(range(len(batch.lp)))))
    assert close(loss(taken(batch, order)), loss(batch)[order])
    assert close(gradient(loss, taken(batch, order)), gradient(loss, batch)[order])


@named(LOSSES)
@few
@given(batch=batches())
def test_micro_batches_of_whole_rollouts_change_no_gradient(name, options, batch):
    loss, weight = loss_of(name, options), weights_for(batch)
    assert close(in_chunks(loss, batch, weight, batch.rollout), gradient(loss, batch, weight))


@named(LOSSES)
@few
@given(batch=batches())
def test_micro_batches_of_whole_units_change_no_gradient(name, options, batch):
    loss, weight = loss_of(name, options), weights_for(batch)
    ids = unit_ids(batch, unit_of(name, options))
    assert close(in_chunks(loss, batch, weight, ids), gradient(loss, batch, weight))


@pytest.mark.parametrize("name", ["loop", "gspo"])
def test_cutting_a_unit_does_change_the_gradient(name):
    batch = moved([0.0003, 0.0002, -0.0001, 0.0001], turn=[0, 0, 1, 1])
    loss, weight = loss_of(name, {"unit": "rollout"}), weights_for(batch)
    assert not close(in_chunks(loss, batch, weight, batch.turn), gradient(loss, batch, weight))


@named(LOSSES)
@few
@given(batch=batches())
def test_where_nothing_has_moved_every_gradient_is_that_of_reinforce(name, options, batch):
    still = at_rest(batch)
    scale = torch.ones_like(still.advantage)
    if name == "loop":
        scale = unit_sum(scale, unit_ids(still, unit_of(name, options)))
    assert close(gradient(loss_of(name, options), still), -still.advantage * scale)


@named(PLAIN)
@few
@given(batch=batches())
def test_no_advantage_no_loss_and_no_gradient(name, options, batch):
    loss = loss_of(name, options)
    nothing = tokens(
        batch.lp.detach(),
        batch.lp_old,
        0.0,
        lp_beh=batch.lp_beh,
        turn=batch.turn.tolist(),
        rollout=batch.rollout.tolist(),
        version=batch.version.tolist(),
        current=batch.current,
        proximal=batch.proximal,
    )
    assert bool((loss(nothing) == 0).all())
    assert bool((gradient(loss, nothing) == 0).all())


@named(CORRECTIONS)
@few
@given(batch=batches())
def test_corrections_are_finite_not_negative_and_without_gradient(name, options, batch):
    weight = correction_of(name, options)(batch)
    assert weight.shape == batch.lp.shape
    assert bool(torch.isfinite(weight).all()) and bool((weight >= 0).all())
    assert not weight.requires_grad


@named(CORRECTIONS)
@few
@given(batch=batches())
def test_where_learner_and_sampler_agree_corrections_are_one(name, options, batch):
    assert bool((correction_of(name, options)(at_rest(batch)) == 1).all())


@named(CORRECTIONS)
@few
@given(batch=batches(), data=st.data())
def test_permuting_the_tokens_permutes_corrections(name, options, batch, data):
    correction = correction_of(name, options)
    order = torch.tensor(data.draw(st.permutations(range(len(batch.lp)))))
    assert close(correction(taken(batch, order)), correction(batch)[order])


@named(CORRECTIONS)
@few
@given(batch=batches())
def test_corrections_do_not_depend_on_what_else_is_in_the_micro_batch(name, options, batch):
    correction = correction_of(name, options)
    whole = correction(batch)
    for ids in (batch.rollout, unit_ids(batch, unit_of(find(Kind.CORRECTION, name), options))):
        for chunk in chunks(ids):
            assert close(correction(taken(batch, chunk)), whole[chunk])


@named(LOSSES)
@few
@given(batch=batches())
def test_every_gradient_stays_with_its_own_token(name, options, batch):
    loss, weight = loss_of(name, options), weights_for(batch)
    assert close(gradient(loss, batch, weight), weight * gradient(loss, batch))
