"""GRPO: the same advantages, corrections and losses as those of TRL's trainer."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.learning.credit.returns import grpo as grpo_credit
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.corrections import mis, tis
from palaestra.learning.losses.entropy import entropy_bonus
from palaestra.learning.losses.policy_loss import cispo, grpo, gspo, ppo
from palaestra.learning.losses.trained_tokens import TokenLoss
from tests.peers.conftest import Agree, agree_both
from tests.peers.made import SEEDS, made, ours, per_row, policies
from tests.peers.trl_trainers import (
    EACH,
    LENGTH,
    MEAN,
    NORM,
    SEQUENCE,
    SUM,
    in_groups,
    inputs,
    online,
    per_rollout,
    replies,
    their_loss,
    theirs,
)

NO_TRL = "TRL cannot be imported here; `make check-peers` runs these comparisons"
pytest.importorskip("trl.trainer.grpo_trainer", reason=NO_TRL, exc_type=ImportError)
pytestmark = pytest.mark.trl


LOSS_TYPES = [("grpo", EACH), ("bnpo", MEAN), ("dapo", MEAN), ("dr_grpo", NORM), ("luspo", SUM)]
LOSSES: list[tuple[str, TokenLoss, dict[str, Any]]] = [
    ("token", partial(ppo, low=0.1, high=0.3, dual=math.inf), {}),
    ("token, delta", partial(ppo, low=0.1, high=0.3, dual=1.5), {"delta": 1.5}),
    ("sequence", partial(gspo, low=0.1, high=0.3), SEQUENCE),
]


@pytest.mark.parametrize(("loss_type", "aggregation"), LOSS_TYPES)
@pytest.mark.parametrize(("level", "loss", "more"), LOSSES)
def test_policy_losses(
    agree: Agree,
    folder: Path,
    loss_type: str,
    aggregation: Aggregation,
    level: str,
    loss: TokenLoss,
    more: dict[str, Any],
) -> None:
    peer = online(folder, loss_type=loss_type, epsilon=0.1, epsilon_high=0.3, **more)
    length = LENGTH if aggregation is NORM else None
    for seed in SEEDS:
        for dtype in (torch.float64, torch.float32):
            batch = made(seed)
            numbers = policies(batch, seed, dtype=dtype)
            if level == "sequence":
                numbers = per_row(numbers)
            mine = ours(loss, batch, numbers, batch.weights(aggregation, length))
            agree_both(agree, f"{loss_type}, {level}", mine, theirs(peer, batch, numbers))


def test_cispo(agree: Agree, folder: Path) -> None:
    peer = online(folder, loss_type="cispo", epsilon_high=1.5)
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        mine = ours(partial(cispo, cap=1.5), batch, numbers, batch.weights(MEAN))
        agree_both(agree, "cispo", mine, theirs(peer, batch, numbers))


@pytest.mark.parametrize("unbiased", [False, True])
def test_kl_in_the_loss(agree: Agree, folder: Path, unbiased: bool) -> None:
    peer = online(folder, beta=0.3, loss_type="dapo", use_bias_correction_kl=unbiased)
    kind = "k3-weighted" if unbiased else "k3"
    loss = partial(grpo, beta=0.3, kl=kind, dual=math.inf)
    for seed in SEEDS:
        batch = made(seed)
        numbers = policies(batch, seed)
        mine = ours(loss, batch, numbers, batch.weights(MEAN))
        agree_both(agree, f"dapo + {kind}", mine, theirs(peer, batch, numbers))


def test_entropy_bonus(agree: Agree, folder: Path) -> None:
    """TRL's is always a mean over tokens; ours is aggregated as the loss is."""
    for loss_type, aggregation in (("dapo", MEAN), ("grpo", EACH)):
        peer = online(folder, loss_type=loss_type, entropy_coef=0.01)
        for seed in SEEDS:
            batch = made(seed)
            numbers = policies(batch, seed)
            nats = torch.rand(batch.mask.shape, dtype=torch.float64)
            total = their_loss(peer, inputs(batch, numbers), numbers.lp, nats)
            weight = batch.weights(aggregation)
            mine, _ = ours(partial(ppo, dual=math.inf), batch, numbers, weight)
            each = batch.flat(nats), batch.flat(batch.turn)
            bonus = entropy_bonus(*each, batch.weights(MEAN), coefficient=0.01)
            agree(f"{loss_type} + entropy", mine + bonus, total)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_grpo_advantages(agree: Agree, folder: Path, scale: str) -> None:
    peer = online(folder, scale_rewards=scale)
    for seed in SEEDS:
        batch, order, returns = in_groups(seed)
        mine = grpo_credit(batch.trajectories, eps=1e-4, scale=scale)  # type: ignore[arg-type]
        other = replies(peer, batch, None, returns)["advantages"]
        agree(f"grpo advantages, {scale}", per_rollout(mine, order), other)


CORRECTIONS = {
    "token_truncate": partial(tis, cap=1.5, floor=0.7),
    "token_mask": partial(mis, low=0.7, high=1.5),
    "sequence_truncate": partial(tis, cap=1.5, floor=0.7, level="rollout"),
    "sequence_mask": partial(mis, low=0.7, high=1.5, level="rollout"),
}


@pytest.mark.parametrize("mode", CORRECTIONS)
def test_corrections(agree: Agree, folder: Path, mode: str) -> None:
    """TRL records the sampler's log-probabilities in fp32."""
    peer = online(
        folder,
        loss_type="dapo",
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=0.7,
        vllm_importance_sampling_clip_max=1.5,
    )
    peer.use_vllm = True  # given at construction, it would ask for vLLM itself
    for seed in SEEDS:
        batch, _, returns = in_groups(seed)
        numbers = policies(batch, seed)
        found = replies(peer, batch, numbers, returns)["importance_sampling_ratio"]
        factor = CORRECTIONS[mode](numbers.tokens(batch))
        agree(f"correction {mode}", factor, batch.flat(found.expand_as(batch.mask)))
        mine = ours(partial(ppo, dual=math.inf), batch, numbers, batch.weights(MEAN) * factor)
        other = theirs(peer, batch, numbers, importance_sampling_ratio=found)
        agree_both(agree, f"dapo, {mode}", mine, other)
