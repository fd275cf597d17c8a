"""Credit: the same numbers as verl's `core_algos`, and just where they differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from palaestra.core.errors import GroupTooSmall
from palaestra.learning.credit import compose
from palaestra.learning.credit.gae import gae
from palaestra.learning.credit.returns import (
    drgrpo,
    grpo,
    reinforce,
    reinforce_plus_plus,
    remax,
    rloo,
)
from palaestra.learning.credit.rule import Credit, whitened
from palaestra.learning.data.reward_terms import overlong_punishment
from palaestra.learning.losses.kl import in_reward
from tests.peers.conftest import Agree
from tests.peers.made import SEEDS, Batch, made, of_returns, policies

NO_VERL = "verl cannot be imported here; `make check-peers` runs these comparisons"
core = pytest.importorskip("verl.trainer.ppo.core_algos", reason=NO_VERL, exc_type=ImportError)
pytestmark = pytest.mark.verl

COMPARED = {
    *("gae", "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "remax"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline"),
}
NOT_OURS = {  # palaestra has no rule for these
    *("opo", "grpo_passk", "gpg", "gdpo"),
    *("optimal_token_baseline", "tir_optimal_token_baseline"),
}


def test_every_estimator_is_compared_or_has_no_counterpart() -> None:
    assert set(core.ADV_ESTIMATOR_REGISTRY) == COMPARED | NOT_OURS


def flat(credit: Credit) -> Tensor:
    return torch.cat(credit.advantages)


def config(**settings: object) -> object:
    from verl.trainer.config import AlgoConfig

    return AlgoConfig(**settings)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["grpo", "grpo_vectorized"])
def test_grpo(agree: Agree, seed: int, name: str) -> None:
    batch, estimate = made(seed), core.get_adv_estimator_fn(name)
    args = (batch.rewards, batch.mask, batch.index)
    with_std, _ = estimate(*args)
    agree(f"{name}", flat(grpo(batch.trajectories)), batch.flat(with_std))
    without, _ = estimate(*args, norm_adv_by_std_in_grpo=False)
    agree(f"{name}, no std", flat(drgrpo(batch.trajectories)), batch.flat(without))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["rloo", "rloo_vectorized"])
def test_rloo(agree: Agree, seed: int, name: str) -> None:
    batch = made(seed)
    theirs, _ = core.get_adv_estimator_fn(name)(batch.rewards, batch.mask, batch.index)
    agree(name, flat(rloo(batch.trajectories)), batch.flat(theirs))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus(agree: Agree, seed: int, gamma: float) -> None:
    batch = made(seed)
    theirs, returns = core.compute_reinforce_plus_plus_outcome_advantage(
        batch.rewards, batch.mask, config=config(gamma=gamma)
    )
    ours = reinforce_plus_plus(batch.trajectories, gamma=gamma)
    agree("reinforce_plus_plus", flat(ours), batch.flat(theirs))
    to_go = reinforce(batch.trajectories, gamma=gamma)
    agree("reinforce_plus_plus, returns", flat(to_go), batch.flat(returns))


@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_plus_plus_with_a_baseline_is_drgrpo_whitened(agree: Agree, seed: int) -> None:
    """Our whitening adds 1e-8 to the deviation, verl's to the variance."""
    batch = made(seed)
    theirs, _ = core.compute_reinforce_plus_plus_baseline_outcome_advantage(
        batch.rewards, batch.mask, batch.index
    )
    ours = compose.whiten(drgrpo(batch.trajectories), batch.trajectories, "batch")
    agree("reinforce_plus_plus_baseline", flat(ours), batch.flat(theirs))


@pytest.mark.parametrize("seed", SEEDS)
def test_remax(agree: Agree, seed: int) -> None:
    batch = made(seed)
    baselines = torch.tensor([t.greedy for t in batch.trajectories], dtype=torch.float64)
    theirs, _ = core.compute_remax_outcome_advantage(batch.rewards, baselines, batch.mask)
    agree("remax", flat(remax(batch.trajectories)), batch.flat(theirs))


def masked_gae(batch: Batch, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    return core.compute_gae_advantage_return(batch.rewards, batch.values, batch.mask, gamma, lam)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)])
def test_gae_skips_observations(agree: Agree, seed: int, gamma: float, lam: float) -> None:
    batch = made(seed)
    advantages, returns = masked_gae(batch, gamma, lam)
    ours = gae(batch.trajectories, gamma=gamma, lam=lam)
    assert ours.returns is not None
    agree("gae, whitened", flat(ours), batch.flat(advantages))
    agree("gae, returns", torch.cat(ours.returns), batch.flat(returns))
    raw = gae(batch.trajectories, gamma=gamma, lam=lam, whiten=False)
    agree("gae", flat(raw), batch.flat(returns - batch.values))


@pytest.mark.parametrize("seed", SEEDS)
def test_kl_in_the_reward(agree: Agree, seed: int) -> None:
    batch, beta = made(seed), 0.05
    numbers = policies(batch, seed)
    theirs = core.compute_rewards(batch.rewards, numbers.lp_old, numbers.lp_ref, beta)
    columns = (batch.rewards, numbers.lp_old, numbers.lp_ref)
    ours = in_reward(*(batch.flat(column).tolist() for column in columns), beta=beta)
    agree("compute_rewards", torch.tensor(ours, dtype=torch.float64), batch.flat(theirs))


# ── differences ──────────────────────────────────────────────────────────────


def test_a_group_of_one_is_an_error_where_verl_goes_on(agree: Agree) -> None:
    alone, score, index = of_returns([0.7]), torch.tensor([[0.7]]), np.array(["a"])
    mask = torch.ones(1, 1)
    found = {
        name: core.get_adv_estimator_fn(name)(score.clone(), mask, index)[0]
        for name in ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")
    }
    agree("group of one, grpo", 0.7, float(found["grpo"]))
    agree("group of one, grpo_vectorized", 0.7, float(found["grpo_vectorized"]))
    agree("group of one, rloo", 0.7, float(found["rloo"]))
    agree("group of one, rloo_vectorized", 0.0, float(found["rloo_vectorized"]))
    for rule in (grpo, drgrpo, rloo):
        with pytest.raises(GroupTooSmall):
            rule(alone)


def test_equal_returns_give_exact_zeros_where_verl_divides_rounding_by_eps() -> None:
    """The mean of equal numbers may be off by an ulp, and eps is hardly more than that."""
    scores, index = torch.full((3, 1), 0.9), np.array(["a"] * 3)
    theirs, _ = core.compute_grpo_outcome_advantage(scores, torch.ones(3, 1), index)
    assert 0.01 < float(theirs.abs().max()) < 0.1
    assert flat(grpo(of_returns([0.9] * 3))).tolist() == [0.0] * 3


def test_verl_loses_rewards_that_stand_on_observations() -> None:
    """Rewards of ours belong to turns; in verl they may stand anywhere in the response."""
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    scores = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])  # after the last sampled token
    _, lost = core.compute_reinforce_plus_plus_outcome_advantage(scores, mask, config=config())
    remaxed, _ = core.compute_remax_outcome_advantage(scores, torch.zeros(2), mask)
    values = torch.zeros(2, 3)
    _, targets = core.compute_gae_advantage_return(scores, values, mask, 1.0, 1.0)
    for nothing in (lost, remaxed, targets):
        assert not (nothing * mask).any()
    index = np.array(["a", "a"])
    kept, _ = core.compute_rloo_outcome_advantage(scores.clone(), mask, index)
    assert kept.tolist() == [[1.0, 1.0, 0.0], [-1.0, -1.0, 0.0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rollout_cut_off_looks_ahead_as_if_verl_were_given_a_last_reward(
    agree: Agree, seed: int
) -> None:
    """verl takes every end as terminal: what its value would add must be put in the reward."""
    batch, gamma = made(seed), 0.9
    cut = [replace(t, truncated=True, bootstrap=2.5) for t in batch.trajectories]
    ours = gae(cut, gamma=gamma, lam=0.95, whiten=False)
    terminal = gae(batch.trajectories, gamma=gamma, lam=0.95, whiten=False)
    assert float((flat(ours) - flat(terminal)).abs().min()) > 1e-3
    rewards = batch.rewards.clone()
    for i, row in enumerate(batch.mask):
        rewards[i, int(row.nonzero().max())] += gamma * 2.5
    _, returns = masked_gae(replace(batch, rewards=rewards), gamma, 0.95)
    agree("gae, bootstrap as last reward", flat(ours), batch.flat(returns - batch.values))


def test_whitening_one_token_gives_zero_where_verl_refuses() -> None:
    from verl.utils.torch_functional import masked_whiten

    with pytest.raises(ValueError, match="division by zero"):
        masked_whiten(torch.ones(1, 1), torch.ones(1, 1))
    assert whitened([torch.ones(1, dtype=torch.float64)])[0].tolist() == [0.0]


class Letters:
    """A tokenizer as far as verl's reward manager asks for one."""

    eos_token = "</s>"

    def decode(self, ids: Tensor, skip_special_tokens: bool = True) -> str:
        return "x" * len(ids)


def test_overlong_punishment_counts_sampled_tokens_and_stops_at_the_limit(agree: Agree) -> None:
    """verl counts observations as well, and goes on punishing beyond the limit."""
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.workers.reward_manager.dapo import DAPORewardManager

    limit, buffer, lengths = 20, 8, [3, 12, 13, 17, 20, 26]
    attention = torch.tensor([[1] * (1 + n) + [0] * (30 - n) for n in lengths])
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.ones(len(lengths), 1, dtype=torch.int64),
            "responses": torch.ones(len(lengths), 30, dtype=torch.int64),
            "attention_mask": attention,
        },
        non_tensors={
            "reward_model": np.array([{"ground_truth": ""}] * len(lengths)),
            "data_source": np.array(["made"] * len(lengths)),
        },
    )
    manager = DAPORewardManager(
        Letters(),
        num_examine=0,
        compute_score=lambda **_: 0.0,
        max_resp_len=limit,
        overlong_buffer_cfg=OmegaConf.create(
            {"enable": True, "len": buffer, "penalty_factor": 1.0, "log": False}
        ),
    )
    theirs = manager(data).sum(dim=-1)
    ours = [overlong_punishment(n, limit=limit, buffer=buffer) for n in lengths]
    agree("overlong, up to the limit", torch.tensor(ours[:-1]), theirs[:-1])
    assert ours[-1] == -1.0
    agree("overlong, beyond the limit", -(26 - 12) / 8, theirs[-1])
