"""Off-policy corrections: the same weights and rejections as verl's, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from palaestra.learning.losses.corrections import mis, rejection, tis
from palaestra.learning.losses.policy_loss import cispo, decoupled, grpo, gspo, ppo
from palaestra.learning.losses.trained_tokens import Tokens
from tests.peers.conftest import Agree, agree_both
from tests.peers.made import SEEDS, gradient, made, ours, policies
from tests.peers.verl_losses import MODES, actor, correction_weights, their_loss, theirs, weights

NO_VERL = "verl cannot be imported here; `make check-peers` runs these comparisons"
core = pytest.importorskip("verl.trainer.ppo.core_algos", reason=NO_VERL, exc_type=ImportError)
pytestmark = pytest.mark.verl

LEVELS = {"token": "token", "sequence": "rollout"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("normalise", [False, True])
def test_truncated_importance_weights(agree: Agree, seed: int, level: str, normalise: bool) -> None:
    batch = made(seed)
    numbers = policies(batch, seed)
    mine = tis(numbers.tokens(batch), cap=1.5, level=LEVELS[level], normalise=normalise)
    other = correction_weights(batch, numbers, level, 1.5, normalise)
    agree(f"rollout_is {level}", mine, batch.flat(other))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", LEVELS)
def test_masked_importance_weights(agree: Agree, seed: int, level: str) -> None:
    batch = made(seed)
    numbers = policies(batch, seed)
    mine = mis(numbers.tokens(batch), low=0.6, high=1.5, level=LEVELS[level])
    other = correction_weights(batch, numbers, level, "0.6_1.5")
    assert (mine == 0).any() and (mine != 0).any()
    agree(f"rollout_is {level}, masked", mine, batch.flat(other))


CRITERIA = [
    *[("token_k1", "token", "sum", 0.6, 1.5), ("token_k2", "token", "sum", 0.0, 0.1)],
    *[("token_k3", "token", "mean", 0.0, 0.1), ("seq_sum_k1", "rollout", "sum", 0.3, 2.0)],
    *[("seq_sum_k2", "rollout", "sum", 0.0, 1.0), ("seq_sum_k3", "rollout", "sum", 0.0, 1.0)],
    *[("seq_mean_k1", "rollout", "mean", 0.9, 1.2), ("seq_mean_k2", "rollout", "mean", 0.0, 0.12)],
    *[("seq_mean_k3", "rollout", "mean", 0.0, 0.12), ("seq_max_k2", "rollout", "max", 0.0, 0.5)],
    *[("seq_max_k3", "rollout", "max", 0.0, 0.5)],
]


def test_every_rejection_of_verl_is_compared() -> None:
    from verl.trainer.ppo.rollout_corr_helper import SUPPORTED_ROLLOUT_RS_OPTIONS

    assert {name for name, *_ in CRITERIA} == SUPPORTED_ROLLOUT_RS_OPTIONS


@pytest.mark.parametrize(("name", "level", "reduce", "low", "high"), CRITERIA)
def test_rejection(
    agree: Agree, name: str, level: str, reduce: str, low: float, high: float
) -> None:
    """verl bounds 1/w by its "lower_upper", we bound w: the bounds are each other's inverse."""
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_rejection_mask

    kept = total = 0.0
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        options = {"estimator": name[-2:], "level": level, "reduce": reduce}
        mine = rejection(numbers.tokens(batch), **options, low=low, high=high)
        threshold = f"{1 / high!r}_{1 / low!r}" if name.endswith("k1") else high
        other, _ = compute_rollout_rejection_mask(
            numbers.lp_old - numbers.lp_beh, batch.mask, name, threshold
        )
        agree(f"rollout_rs {name}", mine, batch.flat(other))
        kept, total = kept + float(mine.sum()), total + len(mine)
    assert 0.05 < kept / total < 0.95, "the bounds leave nothing to compare"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_losses_times_a_correction(agree: Agree, seed: int, mode: str) -> None:
    batch = made(seed)
    numbers = policies(batch, seed)
    weight = correction_weights(batch, numbers, "token", 1.5)
    factor = tis(numbers.tokens(batch), cap=1.5)
    for name, loss in [("vanilla", ppo), ("gspo", partial(gspo, low=0.2, high=0.2))]:
        mine = ours(loss, batch, numbers, weights(batch, mode) * factor)
        other = theirs(name, batch, numbers, mode, actor(), weight)
        agree_both(agree, f"{name}, corrected", mine, other)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mode", "threshold"), [("truncate", 1.5), ("mask", "1e-12_1.5")])
def test_decoupled_ppo_is_ppo_times_a_correction(
    agree: Agree, seed: int, mode: str, threshold: float | str
) -> None:
    batch = made(seed)
    numbers = policies(batch, seed)
    mine = ours(
        partial(decoupled, cap=1.5, mode=mode), batch, numbers, weights(batch, "token-mean")
    )
    weight = correction_weights(batch, numbers, "token", threshold)
    other = theirs("vanilla", batch, numbers, "token-mean", actor(clip_ratio_c=1e9), weight)
    agree_both(agree, "vanilla as decoupled", mine, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_in_bypass_mode_is_cispo_against_the_sampler(agree: Agree, seed: int) -> None:
    from verl.trainer.config import RolloutCorrectionConfig
    from verl.workers.config import PolicyLossConfig

    batch = made(seed)
    numbers = policies(batch, seed)
    correction = RolloutCorrectionConfig(
        loss_type="reinforce", rollout_is="token", rollout_is_threshold=1.5
    )
    config = actor(policy_loss=PolicyLossConfig(rollout_correction=correction))
    mine = ours(partial(cispo, cap=1.5), batch, numbers, weights(batch, "token-mean"))
    other = theirs("bypass_mode", batch, numbers, "token-mean", config)
    agree_both(agree, "bypass_mode, reinforce", mine, other)


# ── differences ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_rejected_keeps_its_position_in_our_denominators(agree: Agree, seed: int) -> None:
    """verl rejects in the mask that it counts: what survives weighs more."""
    batch = made(seed)
    numbers = policies(batch, seed)
    accepted = rejection(numbers.tokens(batch), estimator="k1", level="token", low=0.6, high=1.5)
    rejected = torch.zeros_like(batch.mask)
    rejected[batch.mask.bool()] = accepted.long()
    smaller = replace(batch, mask=rejected)
    mine = ours(ppo, batch, numbers, weights(batch, "token-mean") * accepted)
    value, slope = theirs("vanilla", smaller, numbers, "token-mean", actor())
    share = accepted.mean()
    agree_both(agree, "vanilla, rejected tokens", mine, (value * share, slope * share))
    whole = torch.zeros(len(batch.mask), dtype=torch.int64)
    whole[::2] = 1  # whole rollouts rejected
    fewer = replace(batch, mask=batch.mask * whole[:, None])
    kept = batch.flat(whole[:, None].expand_as(batch.mask)).double()
    mine = ours(ppo, batch, numbers, weights(batch, "seq-mean-token-mean") * kept)
    value, slope = theirs("vanilla", fewer, numbers, "seq-mean-token-mean", actor())
    share = whole.double().mean()
    agree_both(agree, "vanilla, rejected rollouts", mine, (value * share, slope * share))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_correction_weighs_the_policys_loss_and_not_kl(agree: Agree, seed: int) -> None:
    batch, beta = made(seed), 0.3
    numbers = policies(batch, seed)
    tokens = numbers.tokens(batch)
    factor, weight = tis(tokens, cap=1.5), weights(batch, "token-mean")

    def weighed(seen: Tokens) -> torch.Tensor:
        return grpo(replace(seen, advantage=seen.advantage * factor), beta=beta)

    mine = ours(weighed, batch, numbers, weight)
    corrected = correction_weights(batch, numbers, "token", 1.5)
    policy = their_loss("vanilla", batch, numbers, "token-mean", actor(), corrected)
    each = core.kl_penalty(numbers.lp, numbers.lp_ref, "k3")
    kl = core.agg_loss(each, batch.mask, "token-mean")
    other = policy + beta * kl
    agree_both(agree, "vanilla + k3, corrected", mine, (other, gradient(other, numbers)))
