"""RLOO: the same advantages as those of TRL's trainer, and how its loss relates to ours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from palaestra.learning.credit import compose
from palaestra.learning.credit.returns import rloo
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.losses.kl import in_reward
from palaestra.learning.losses.policy_loss import loop, pg
from tests.peers.conftest import Agree, agree_both
from tests.peers.made import (
    SEEDS,
    Batch,
    Policies,
    gradient,
    made,
    of_returns,
    ours,
    per_row,
    policies,
)
from tests.peers.trl_trainers import (
    EACH,
    SUM,
    completion,
    in_groups,
    inputs,
    online,
    per_rollout,
    their_loss,
)

NO_TRL = "TRL cannot be imported here; `make check-peers` runs these comparisons"
pytest.importorskip("trl.trainer.grpo_trainer", reason=NO_TRL, exc_type=ImportError)
pytestmark = pytest.mark.trl


def rloo_replies(peer: Any, batch: Batch, numbers: Policies, rewards: Tensor) -> Tensor:
    lengths = completion(batch).sum(dim=1).tolist()
    ids = [[2] * n for n in lengths]
    answers = iter([numbers.lp_old, numbers.lp_ref])
    peer._get_per_token_logps_and_entropies = lambda *_, **__: (next(answers), None, None)
    peer._generate = lambda _: ([[2]] * len(ids), ids, [""] * len(ids))
    peer._calculate_rewards = lambda *_: rewards[:, None]
    peer.ref_model = peer.model
    return peer._generate_and_score_completions([{"prompt": "red"}] * len(ids))["advantages"]


def test_rloo_advantages(agree: Agree, folder: Path) -> None:
    peer = online(folder, "RLOO")
    for seed in SEEDS:
        batch, order, returns = in_groups(seed)
        other = rloo_replies(peer, batch, policies(batch, seed), returns)
        agree("rloo advantages", per_rollout(rloo(batch.trajectories), order), other)


def test_rloo_takes_the_kl_off_the_reward(agree: Agree, folder: Path) -> None:
    """The RLOO trainer knows no observations: every token of the completion counts there."""
    peer, beta = online(folder, "RLOO", beta=0.05), 0.05
    for seed in SEEDS:
        batch, _, returns = in_groups(seed)
        within = completion(batch).bool()
        numbers = policies(batch, seed)
        other = rloo_replies(peer, batch, numbers, returns)
        taken = []
        for i, total in enumerate(returns.tolist()):
            lp, ref = numbers.lp_old[i][within[i]].tolist(), numbers.lp_ref[i][within[i]].tolist()
            taken.append(sum(in_reward([*[0.0] * (len(lp) - 1), total], lp, ref, beta=beta)))
        mine = [a for g in range(3) for a in rloo(of_returns(taken[4 * g : 4 * g + 4])).advantages]
        agree("rloo advantages, KL in reward", torch.cat(mine), other)


def test_rloo_normalised_is_whitening_over_rollouts(agree: Agree, folder: Path) -> None:
    """TRL's deviation is over rollouts; ours over tokens, here one of each rollout."""
    peer = online(folder, "RLOO", normalize_advantages=True)
    for seed in SEEDS:
        batch, _, returns = in_groups(seed)
        other = rloo_replies(peer, batch, policies(batch, seed), returns)
        single: list[Trajectory] = []
        for g in range(3):
            single += of_returns(returns[4 * g : 4 * g + 4].tolist(), group=g)
        mine = compose.whiten(rloo(single), single, "batch", eps=1e-4)
        agree("rloo advantages, normalised", torch.cat(mine.advantages), other)


def rloo_loss(peer: Any, batch: Batch, numbers: Policies) -> tuple[Tensor, Tensor]:
    given = inputs(batch, numbers)
    given["completion_mask"] = batch.mask
    given["advantages"] = numbers.advantage[:, 0]
    given["old_logps"] = (numbers.lp_old * batch.mask).sum(dim=1)
    total = their_loss(peer, given, numbers.lp)
    return total, gradient(total, numbers)


def test_rloo_loss_is_ppo_over_whole_rollouts(agree: Agree, folder: Path) -> None:
    """It clips the product of a rollout's ratios, as `loop` does with the rollout as unit."""
    peer = online(folder, "RLOO", epsilon=1 - 1 / 1.25, epsilon_high=0.25)
    loss = partial(loop, epsilon=0.25, unit="rollout")
    for seed in SEEDS:
        batch = made(seed)
        numbers = per_row(policies(batch, seed, spread=0.1))
        mine = ours(loss, batch, numbers, batch.weights(EACH))
        agree_both(agree, "rloo as loop", mine, rloo_loss(peer, batch, numbers))


def test_rloos_first_update_has_the_gradient_of_plain_policy_gradient(
    agree: Agree, folder: Path
) -> None:
    """Our `rloo` has no ratio at all; until the weights move, TRL's has the same gradient."""
    peer = online(folder, "RLOO")
    for seed in SEEDS:
        batch = made(seed)
        numbers = per_row(policies(batch, seed))
        numbers = replace(numbers, lp_old=numbers.lp.detach())
        _, mine = ours(pg, batch, numbers, batch.weights(SUM))
        agree("rloo, first gradient", mine, rloo_loss(peer, batch, numbers)[1])
