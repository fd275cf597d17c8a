"""Losses: the same values and gradients as verl's, and just where they differ."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.critics.value_head import value_loss
from palaestra.learning.data.rows import Row
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.entropy import entropy_bonus
from palaestra.learning.losses.kl import k1, k2, k3, k3_plus
from palaestra.learning.losses.policy_loss import cispo, grpo, gspo, pg, ppo
from palaestra.learning.losses.trained_tokens import TokenLoss
from tests.peers.conftest import Agree, agree_both
from tests.peers.made import SEEDS, gradient, made, ours, policies
from tests.peers.verl_losses import LENGTH, MODES, actor, theirs, weights

NO_VERL = "verl cannot be imported here; `make check-peers` runs these comparisons"
core = pytest.importorskip("verl.trainer.ppo.core_algos", reason=NO_VERL, exc_type=ImportError)
pytestmark = pytest.mark.verl

COMPARED = {"vanilla", "gspo", "cispo", "gpg", "bypass_mode"}
NOT_OURS = {"dppo_tv", "dppo_kl", "sapo", "clip_cov", "kl_cov", "geo_mean", "dro"}
DTYPES = [torch.float64, torch.float32]


def test_every_loss_is_compared_or_has_no_counterpart() -> None:
    assert set(core.POLICY_LOSS_REGISTRY) == COMPARED | NOT_OURS


LOSSES: list[tuple[str, TokenLoss, dict[str, float]]] = [
    (
        "vanilla",
        partial(ppo, low=0.1, high=0.3, dual=1.5),
        {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 1.5},
    ),
    ("vanilla", ppo, {}),
    ("gspo", partial(gspo, low=0.05, high=0.1), {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1}),
    (
        "cispo",
        partial(cispo, floor=0.9, cap=1.3),
        {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3},
    ),
    ("gpg", pg, {}),
    ("reinforce", pg, {}),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "loss", "settings"), LOSSES)
def test_policy_losses(
    agree: Agree,
    seed: int,
    mode: str,
    dtype: torch.dtype,
    name: str,
    loss: TokenLoss,
    settings: dict[str, float],
) -> None:
    batch = made(seed)
    numbers = policies(batch, seed, dtype=dtype)
    mine = ours(loss, batch, numbers, weights(batch, mode))
    agree_both(agree, name, mine, theirs(name, batch, numbers, mode, actor(**settings)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3+"])
@pytest.mark.parametrize("mode", MODES)
def test_kl_in_the_loss(agree: Agree, seed: int, kind: str, mode: str) -> None:
    batch, beta = made(seed), 0.3
    numbers = policies(batch, seed)
    mine = ours(partial(grpo, beta=beta, kl=kind), batch, numbers, weights(batch, mode))
    policy, slope = theirs("vanilla", batch, numbers, mode, actor())
    each = core.kl_penalty(numbers.lp, numbers.lp_ref, kind)
    kl = core.agg_loss(each, batch.mask, mode, loss_scale_factor=LENGTH)
    other = (policy + beta * kl, slope + beta * gradient(kl, numbers))
    agree_both(agree, f"vanilla + {kind}", mine, other)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clip", [0.2, 0.5])
@pytest.mark.parametrize("mode", MODES)
def test_value_loss(agree: Agree, seed: int, clip: float, mode: str) -> None:
    batch = made(seed)
    g = torch.Generator().manual_seed(seed)
    values, targets, old = torch.randn(3, *batch.mask.shape, generator=g, dtype=torch.float64)
    values = values.requires_grad_()
    loss, _ = core.compute_value_loss(
        values, targets, old, batch.mask, clip, mode, loss_scale_factor=LENGTH
    )
    each = value_loss(batch.flat(values), batch.flat(targets), batch.flat(old), clip)
    total = (each * weights(batch, mode)).sum()
    (mine,), (other,) = (torch.autograd.grad(x, values) for x in (total, loss))
    agree_both(agree, "compute_value_loss", (total.detach(), mine), (loss.detach(), other))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_aggregation_and_entropy_bonus(agree: Agree, seed: int, mode: str) -> None:
    batch = made(seed)
    g = torch.Generator().manual_seed(seed)
    matrix = torch.randn(batch.mask.shape, generator=g, dtype=torch.float64)
    expected = core.agg_loss(matrix, batch.mask, mode, loss_scale_factor=LENGTH)
    weight = weights(batch, mode)
    agree("agg_loss", (batch.flat(matrix) * weight).sum(), expected)
    bonus = entropy_bonus(batch.flat(matrix), batch.flat(batch.turn), weight, coefficient=0.01)
    agree("agg_loss, entropy", bonus, -0.01 * expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_micro_batches_add_up_as_in_verl_given_the_size_of_the_whole(
    agree: Agree, seed: int
) -> None:
    batch = made(seed)
    g = torch.Generator().manual_seed(seed)
    matrix = torch.randn(batch.mask.shape, generator=g, dtype=torch.float64)
    whole = {"batch_num_tokens": int(batch.mask.sum()), "global_batch_size": len(batch.mask)}
    for mode in MODES:
        parts = [
            core.agg_loss(matrix[a:b], batch.mask[a:b], mode, loss_scale_factor=LENGTH, **whole)
            for a, b in [(0, 2), (2, len(matrix))]
        ]
        mine = (batch.flat(matrix) * weights(batch, mode)).sum()
        agree("agg_loss, two micro-batches", mine, parts[0] + parts[1])


# ── differences ──────────────────────────────────────────────────────────────


def test_rollouts_that_train_nothing_do_not_count_but_verls_trainer_counts_them(
    agree: Agree,
) -> None:
    """Alone, `agg_loss` leaves them out as we do; the trainer gives it a fixed number of rows."""
    batch = made(0)
    batch.mask[1] = 0
    batch.rows[1] = replace(batch.rows[1], mask=[False] * len(batch.rows[1].mask))
    matrix = torch.randn(batch.mask.shape, dtype=torch.float64)
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"):
        mine = (batch.flat(matrix) * weights(batch, mode)).sum()
        alone = core.agg_loss(matrix, batch.mask, mode, loss_scale_factor=LENGTH)
        agree("agg_loss, an empty row", mine, alone)
        count = len(batch.mask)
        fixed = core.agg_loss(
            matrix, batch.mask, mode, loss_scale_factor=LENGTH, global_batch_size=count
        )
        agree("agg_loss, an empty row counted", mine * (count - 1) / count, fixed)


def test_a_sequence_is_a_rollout_however_many_rows_it_has(agree: Agree) -> None:
    """verl averages over rows: splitting a rollout makes it weigh more there."""
    key, other = Key("rl/1", 0, 0), Key("rl/1", 0, 1)
    one = Row(key, [7] * 5, [False, *[True] * 4], [0.0] * 5, [-1, 0, 0, 1, 1])
    parts = [
        Row(key, [7] * 3, [False, True, True], [0.0] * 3, [-1, 0, 0]),
        Row(key, [7] * 3, [False, True, True], [0.0] * 3, [-1, 1, 1]),
    ]
    second = Row(other, [7] * 3, [False, True, True], [0.0] * 3, [-1, 0, 0])

    def weighed(rows: list[Row]) -> list[float]:
        found = token_weights(rows, Aggregation.ROLLOUT_TOKEN_MEAN)
        return [w for row, ws in zip(rows, found, strict=True) for w in ws[1:]]

    assert weighed([one, second]) == weighed([*parts, second])
    matrix = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 0.0, 0.0]], dtype=torch.float64)
    whole = core.agg_loss(matrix, (matrix > 0).long(), "seq-mean-token-mean")
    each = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.float64)
    mine = (each * torch.tensor(weighed([*parts, second]), dtype=torch.float64)).sum()
    agree("agg_loss, a rollout in one row", mine, whole)
    split = core.agg_loss(
        matrix.reshape(4, 2)[:3], torch.ones(3, 2, dtype=torch.int64), "seq-mean-token-mean"
    )
    assert float(whole) == pytest.approx(4.0) and float(split) == pytest.approx(10.5 / 3)


def test_the_constant_length_must_be_given_where_verl_takes_the_padded_width(
    agree: Agree,
) -> None:
    batch = made(0)
    matrix = torch.randn(batch.mask.shape, dtype=torch.float64)
    width = batch.mask.shape[1]
    mine = (batch.flat(matrix) * batch.weights(Aggregation.ROLLOUT_TOKEN_NORM, width)).sum()
    agree(
        "agg_loss, padded width", mine, core.agg_loss(matrix, batch.mask, "seq-mean-token-sum-norm")
    )


def one_token(difference: float) -> tuple[Tensor, Tensor]:
    lp = torch.tensor([[-1.0 + difference]], dtype=torch.float64).requires_grad_()
    return lp, torch.tensor([[-1.0]], dtype=torch.float64)


@pytest.mark.parametrize("difference", [-30.0, -4.0, -2.0, 4.0, 15.0, 30.0])
def test_k3_is_bounded_alike_and_has_no_gradient_beyond(agree: Agree, difference: float) -> None:
    lp, ref = one_token(difference)
    mine, other = k3(lp, ref), core.kl_penalty(lp, ref, "k3")
    agree("k3, bounds", mine, other)
    (slope,) = torch.autograd.grad(mine, lp)
    (theirs,) = torch.autograd.grad(other, lp)
    agree("k3, gradient at the bounds", slope, theirs)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3+"])
def test_kl_estimators_token_by_token(agree: Agree, kind: str) -> None:
    estimate = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}[kind]
    for seed in SEEDS:
        numbers = policies(made(seed), seed)
        each = estimate(numbers.lp, numbers.lp_ref)
        other = core.kl_penalty(numbers.lp, numbers.lp_ref, kind)
        agree_both(
            agree,
            f"kl_penalty {kind}",
            (each, gradient(each.sum(), numbers)),
            (other, gradient(other.sum(), numbers)),
        )


def test_a_mean_log_ratio_is_bounded_by_ten_in_verls_gspo_and_by_twenty_here() -> None:
    batch = made(0)
    rest = policies(batch, 0)
    numbers = replace(rest, lp=(rest.lp_old + 15.0).requires_grad_())
    numbers = replace(numbers, advantage=-torch.ones_like(rest.advantage))  # never clipped
    _, mine = ours(partial(gspo, low=0.2, high=0.2), batch, numbers, weights(batch, "token-mean"))
    value, slope = theirs("gspo", batch, numbers, "token-mean", actor())
    assert float(value) == pytest.approx(math.exp(10)) and not slope.any()
    assert float(mine.sum()) == pytest.approx(math.exp(15))
