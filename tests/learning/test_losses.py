"""Losses per token and the weights with which they add up."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.learning.losses import (
    Aggregation,
    loop_clip,
    policy_gradient,
    ppo_clip,
    token_weights,
)
from palaestra.learning.rows import Row

LOSSES = [policy_gradient, ppo_clip, loop_clip]
numbers = st.floats(-5, 5)


def one(loss, advantage, rho, **options):
    old = torch.tensor([-1.0], dtype=torch.float64)
    new = old + math.log(rho)
    return float(loss(new, old, torch.tensor([advantage], dtype=torch.float64), **options))


@pytest.mark.parametrize(
    ("advantage", "rho", "dual", "expected"),
    [
        (1, 1.5, 3.0, -1.2),
        (1, 0.5, 3.0, -0.5),
        (-1, 1.5, 3.0, 1.5),
        (-1, 0.5, 3.0, 0.8),
        (-1, 5.0, 3.0, 3.0),
        (-1, 5.0, None, 5.0),
        (1, 5.0, None, -1.2),
    ],
)
def test_ppo_clips_as_published(advantage, rho, dual, expected):
    assert one(ppo_clip, advantage, rho, dual=dual) == pytest.approx(expected)


def test_the_upper_bound_can_be_higher_than_the_lower():
    assert one(ppo_clip, 1, 1.5, low=0.2, high=0.28) == pytest.approx(-1.28)


def test_loop_gives_the_published_token_objectives():
    d = torch.tensor([0.1, 0.1, -0.05, 0.05], dtype=torch.float64)
    objective = -loop_clip(d, torch.zeros_like(d), torch.full_like(d, 0.8333))
    assert objective.tolist() == pytest.approx([0.9166, 0.9166, 0.7927, 0.8760], abs=5e-5)
    assert float(objective.mean()) == pytest.approx(0.8755, abs=5e-5)


def test_loop_clips_symmetrically_in_logarithms():
    assert one(loop_clip, 1, 1.5) == pytest.approx(-1.1)
    assert one(loop_clip, -1, 0.5) == pytest.approx(1 / 1.1)  # not 0.9
    assert one(loop_clip, -1, 1.5) == pytest.approx(1.5)
    assert one(loop_clip, 1, 0.5) == pytest.approx(-0.5)


@pytest.mark.parametrize("loss", LOSSES)
@given(lp=st.lists(numbers, min_size=1, max_size=20), data=st.data())
def test_where_nothing_has_moved_every_loss_has_the_gradient_of_reinforce(loss, lp, data):
    advantage = torch.tensor([data.draw(numbers) for _ in lp], dtype=torch.float64)
    now = torch.tensor(lp, dtype=torch.float64, requires_grad=True)
    loss(now, now.detach().clone(), advantage).sum().backward()
    assert torch.allclose(now.grad, -advantage)


@pytest.mark.parametrize("loss", LOSSES)
@given(lp=numbers, old=numbers)
def test_no_advantage_no_loss_and_no_gradient(loss, lp, old):
    now = torch.tensor([lp], requires_grad=True)
    value = loss(now, torch.tensor([old]), torch.zeros(1))
    value.sum().backward()
    assert float(value.detach()) == 0
    assert float(now.grad) == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_absurd_ratios_stay_finite(loss):
    now = torch.tensor([-1000.0, 0.0], requires_grad=True)
    value = loss(now, torch.tensor([0.0, -1000.0]), torch.tensor([-1.0, 1.0]))
    value.sum().backward()
    assert bool(torch.isfinite(value).all())
    assert bool(torch.isfinite(now.grad).all())


def row(member, trained, context=1):
    mask = [False] * context + [True] * trained
    n = len(mask)
    return Row(Key("rl/1", 0, member), [0] * n, mask, [0.0] * n, [0] * n)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation.TOKEN_MEAN, -0.5),
        (Aggregation.ROLLOUT_TOKEN_MEAN, 0.0),
        (Aggregation.ROLLOUT_TOKEN_SUM, -2.0),
    ],
)
def test_tokens_add_up_as_published(aggregation, expected):
    weights = token_weights([row(0, 2), row(1, 6)], aggregation)
    total = 2 * weights[Key("rl/1", 0, 0)] - 6 * weights[Key("rl/1", 0, 1)]
    assert total == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_splitting_a_rollout_into_rows_changes_no_weight(aggregation):
    whole = token_weights([row(0, 6), row(1, 4)], aggregation)
    split = token_weights([row(0, 2), row(1, 4), row(0, 3), row(0, 1, 9)], aggregation)
    assert whole == pytest.approx(split)


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_rollouts_without_trained_tokens_do_not_count(aggregation):
    assert token_weights([row(0, 2), row(1, 0)], aggregation) == pytest.approx(
        token_weights([row(0, 2)], aggregation)
    )
    assert token_weights([row(1, 0)], aggregation) == {}


def test_the_clipped_loss_agrees_with_verl():
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    g = torch.Generator().manual_seed(0)
    lp, old, advantage = (torch.randn(1, 50, generator=g) for _ in range(3))
    theirs, *_ = core.compute_policy_loss(
        old, lp, advantage, torch.ones(1, 50), cliprange=0.2, clip_ratio_c=3.0
    )
    assert float(ppo_clip(lp, old, advantage).mean()) == pytest.approx(float(theirs), abs=1e-5)
