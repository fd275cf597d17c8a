"""Where palaestra differs from TRL's GRPO trainer, and by how much."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from palaestra.core.errors import GroupTooSmall
from palaestra.learning.credit.returns import grpo as grpo_credit
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.corrections import tis
from palaestra.learning.losses.entropy import entropy_bonus
from palaestra.learning.losses.kl import k3, k3_weighted
from palaestra.learning.losses.policy_loss import grpo, gspo, ppo
from palaestra.learning.losses.trained_tokens import TokenLoss, Tokens, ratio
from tests.peers.conftest import Agree, agree_both
from tests.peers.made import SEEDS, gradient, made, of_returns, ours, policies
from tests.peers.trl_trainers import (
    EACH,
    LENGTH,
    MEAN,
    NORM,
    SEQUENCE,
    in_groups,
    inputs,
    online,
    replies,
    their_loss,
    theirs,
)

NO_TRL = "TRL cannot be imported here; `make check-peers` runs these comparisons"
pytest.importorskip("trl.trainer.grpo_trainer", reason=NO_TRL, exc_type=ImportError)
pytestmark = pytest.mark.trl


def test_the_default_eps_is_verls_where_trl_has_1e_4(agree: Agree, folder: Path) -> None:
    peer = online(folder)
    batch, _, _ = in_groups(0)
    tied = torch.tensor([0.5, 0.5, 0.5, 0.501] * 3, dtype=torch.float64)
    found = replies(peer, batch, None, tied)["advantages"][:4]
    group = of_returns(tied[:4].tolist())
    agree("nearly equal returns", torch.cat(grpo_credit(group, eps=1e-4).advantages), found)
    mine = torch.cat(grpo_credit(group).advantages)
    assert float(mine[3] / found[3]) == pytest.approx(1.2, abs=0.01)


def test_equal_returns_give_exact_zeros_where_trl_divides_rounding_by_eps(folder: Path) -> None:
    peer = online(folder, num_generations=3)
    batch, _, _ = in_groups(0)
    found = replies(peer, batch, None, torch.full((12,), 0.9))["advantages"]
    assert 1e-4 < float(found.abs().max()) < 1e-2
    mine = grpo_credit(of_returns([0.9] * 3), eps=1e-4)
    assert not torch.cat(mine.advantages).any()


def test_a_group_of_one_is_an_error_where_trl_gives_zero(folder: Path) -> None:
    peer = online(folder)
    peer.model.eval()
    peer.num_generations_eval = 1
    batch, _, returns = in_groups(0)
    assert not replies(peer, batch, None, returns)["advantages"].any()
    with pytest.raises(GroupTooSmall):
        grpo_credit(of_returns([0.9]))


@pytest.mark.parametrize(("loss_type", "aggregation"), [("grpo", EACH), ("dr_grpo", NORM)])
def test_rollouts_that_train_nothing_do_not_count_but_trl_counts_them(
    agree: Agree, folder: Path, loss_type: str, aggregation: Aggregation
) -> None:
    batch = made(0)
    numbers = policies(batch, 0)
    given = inputs(batch, numbers)
    given["completion_mask"][1] = 0
    batch.mask[1] = 0
    batch.rows[1] = replace(batch.rows[1], mask=[False] * len(batch.rows[1].mask))
    length = LENGTH if aggregation is NORM else None
    loss = partial(ppo, dual=math.inf)
    mine, slope = ours(loss, batch, numbers, batch.weights(aggregation, length))
    total = their_loss(online(folder, loss_type=loss_type), given, numbers.lp)
    share = (len(batch.mask) - 1) / len(batch.mask)
    other = (total, gradient(total, numbers))
    agree_both(agree, f"{loss_type}, an empty row", (mine * share, slope * share), other)


def test_token_mean_is_over_the_whole_step_as_in_dapo_not_over_micro_batches_as_in_bnpo(
    agree: Agree, folder: Path
) -> None:
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        loss, weight = partial(ppo, dual=math.inf), batch.weights(MEAN)
        mine, slope = ours(loss, batch, numbers, weight)
        found = {}
        for loss_type in ("dapo", "bnpo"):
            peer = online(folder, loss_type=loss_type, gradient_accumulation_steps=2)
            given = inputs(batch, numbers)
            parts = []
            for rows in (slice(0, 2), slice(2, None)):
                part = {k: v[rows] if v.dim() else v for k, v in given.items()}
                parts.append(their_loss(peer, part, numbers.lp[rows]))
            found[loss_type] = sum(parts), gradient(sum(parts), numbers)
        agree_both(agree, "dapo, two micro-batches", (mine, slope), found["dapo"])
        each = loss(numbers.tokens(batch))
        rows = batch.flat(torch.arange(len(batch.mask))[:, None].expand_as(batch.mask))
        halves = (each[rows < 2].mean() + each[rows >= 2].mean()) / 2
        agree("bnpo, two micro-batches", halves, found["bnpo"][0])


def test_a_correction_weighs_the_policys_loss_and_neither_kl_nor_entropy(
    agree: Agree, folder: Path
) -> None:
    beta, bonus = 0.3, 0.01
    peer = online(folder, beta=beta, entropy_coef=bonus, use_bias_correction_kl=False)
    peer.use_vllm = True
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        nats = torch.rand(batch.mask.shape, dtype=torch.float64)
        tokens, weight = numbers.tokens(batch), batch.weights(MEAN)
        factor = tis(tokens, cap=1.5)
        loss = partial(grpo, beta=beta, dual=math.inf)

        def corrected(seen: Tokens, loss: TokenLoss = loss, factor: Tensor = factor) -> Tensor:
            return loss(replace(seen, advantage=seen.advantage * factor))

        value, slope = ours(corrected, batch, numbers, weight)
        value += entropy_bonus(batch.flat(nats), tokens.turn, weight, coefficient=bonus)
        matrix = torch.ones(batch.mask.shape, dtype=torch.float64)
        matrix[batch.mask.bool()] = factor
        given = inputs(batch, numbers, importance_sampling_ratio=matrix)
        total = their_loss(peer, given, numbers.lp, nats)
        agree_both(agree, "dapo + k3, corrected", (value, slope), (total, gradient(total, numbers)))


def test_a_token_keeps_its_own_advantage_where_trl_gives_it_its_sequences_mean(
    agree: Agree, folder: Path
) -> None:
    """TRL's one ratio per sequence carries the gradient; ours (and verl's) is each token's own."""
    peer = online(folder, epsilon=0.999, epsilon_high=1e3, **SEQUENCE)  # nothing is clipped
    loss = partial(gspo, low=0.999, high=1e3)
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        sums = (numbers.advantage * batch.mask).sum(dim=1, keepdim=True)
        mean = sums / batch.mask.sum(dim=1, keepdim=True)
        level = replace(numbers, advantage=mean.expand_as(numbers.lp))
        value, _ = ours(loss, batch, numbers, batch.weights(MEAN))
        _, slope = ours(loss, batch, level, batch.weights(MEAN))
        other = theirs(peer, batch, numbers)
        agree_both(agree, "dapo, sequence, token advantages", (value, slope), other)


def test_the_weighted_kl_is_weighted_by_tokens_even_where_the_loss_is_per_sequence(
    agree: Agree, folder: Path
) -> None:
    """TRL weighs it by the ratio that the loss uses, the geometric mean of the sequence."""
    peer, beta = online(folder, beta=0.3, **SEQUENCE), 0.3
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        tokens, weight = numbers.tokens(batch), batch.weights(MEAN)
        loss = partial(gspo, low=0.2, high=0.2, beta=beta, kl="k3-weighted")
        mine, _ = ours(loss, batch, numbers, weight)
        other, _ = theirs(peer, batch, numbers)
        assert tokens.lp_ref is not None
        lengths = batch.mask.sum(dim=1)
        mean = ((numbers.lp - numbers.lp_old) * batch.mask).sum(dim=1) / lengths
        whole = batch.flat(mean[:, None].expand_as(batch.mask)).exp()
        by_token = k3_weighted(tokens.lp, tokens.lp_ref, tokens.lp_old)
        by_sequence = whole * k3(tokens.lp, tokens.lp_ref)
        difference = (weight * (by_sequence - by_token)).sum()
        assert abs(float(difference.detach())) > 1e-4
        agree("dapo, sequence + k3-weighted", mine + beta * difference, other)


def test_log_ratios_are_bounded_by_20_a_k3_by_10_and_neither_in_trl(folder: Path) -> None:
    batch = made(0)
    far = policies(batch, 0)
    far = replace(far, lp=(far.lp_old + 25).requires_grad_(), lp_ref=far.lp_old + 50)
    far = replace(far, advantage=-torch.ones_like(far.advantage))
    peer = online(folder, beta=1.0, use_bias_correction_kl=False)
    other, _ = theirs(peer, batch, far)
    loss = partial(grpo, beta=1.0, dual=math.inf)
    mine, _ = ours(loss, batch, far, batch.weights(MEAN))
    assert float(other.detach()) == pytest.approx(2 * math.exp(25), rel=1e-6)
    assert float(mine) == pytest.approx(math.exp(20) + 10, rel=1e-12)
    assert float(ratio(far.lp.detach(), far.lp_old).max()) == pytest.approx(math.exp(20))
