"""Credit of one group: the published numbers, and the laws behind them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import GroupTooSmall
from palaestra.learning.credit import group_normalised, leave_one_out

RETURNS = torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
RULES = [leave_one_out, group_normalised]
groups = st.lists(st.floats(-10, 10), min_size=2, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


def close(a, b, tolerance=5e-5):
    return torch.allclose(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def test_leave_one_out_gives_the_published_numbers():
    assert close(leave_one_out(RETURNS), [0.8333, -0.5, 0.1667, -0.5])


@pytest.mark.parametrize(
    ("ddof", "eps", "expected"),
    [
        (1, 1e-6, [1.3056, -0.7833, 0.2611, -0.7833]),
        (0, 1e-6, [1.5076, -0.9045, 0.3015, -0.9045]),
        (1, 1e-4, [1.3053, -0.7832, 0.2611, -0.7832]),
    ],
)
def test_group_normalisation_gives_the_published_numbers(ddof, eps, expected):
    assert close(group_normalised(RETURNS, ddof=ddof, eps=eps), expected)


@given(groups)
def test_leave_one_out_is_the_distance_to_the_mean_of_the_others(returns):
    g = len(returns)
    advantages = leave_one_out(returns)
    others = torch.stack([(returns.sum() - r) / (g - 1) for r in returns])
    assert close(advantages, returns - others, 1e-9)
    assert close(advantages, g / (g - 1) * (returns - returns.mean()), 1e-9)


@pytest.mark.parametrize("rule", RULES)
@given(returns=groups)
def test_advantages_sum_to_zero(rule, returns):
    advantages = rule(returns)
    assert abs(float(advantages.sum())) < 1e-6 * (1 + float(advantages.abs().sum()))


@pytest.mark.parametrize("rule", RULES)
@given(returns=groups, data=st.data())
def test_permuting_the_rollouts_permutes_their_advantages(rule, returns, data):
    order = data.draw(st.permutations(range(len(returns))))
    assert torch.allclose(rule(returns[order]), rule(returns)[order], atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@given(value=st.floats(-10, 10), size=st.integers(2, 12))
def test_equal_returns_teach_nothing(rule, value, size):
    returns = torch.full((size,), value, dtype=torch.float64)
    assert float(rule(returns).abs().max()) < 1e-8


@given(groups, st.floats(0.1, 100), st.floats(-10, 10))
def test_group_normalisation_ignores_the_unit_of_reward(returns, scale, shift):
    if float(returns.std()) < 0.1:
        return
    plain, other = group_normalised(returns), group_normalised(scale * returns + shift)
    assert torch.allclose(plain, other, atol=1e-3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [0, 1])
def test_a_rollout_without_siblings_cannot_be_judged(rule, size):
    with pytest.raises(GroupTooSmall, match=r"rl\.group"):
        rule(torch.zeros(size))


def test_credit_agrees_with_verl():
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    import numpy as np

    returns = torch.rand(8, generator=torch.Generator().manual_seed(0))
    index, mask = np.array(["a"] * 8), torch.ones(8, 1)
    rloo, _ = core.compute_rloo_outcome_advantage(returns[:, None], mask, index)
    assert close(leave_one_out(returns), rloo[:, 0])
    grpo, _ = core.compute_grpo_outcome_advantage(returns[:, None], mask, index)
    assert close(group_normalised(returns), grpo[:, 0])
