"""Generalised advantage estimation: credit from a critic's values, over tokens or over turns.

A trajectory holds sampled tokens only, so observations are skipped by construction: the next
value after a turn's last token is that of the next turn's first token. A rollout that a limit
cut off does not end in a terminal state: its last step bootstraps from `bootstrap`. Critic
targets are made before whitening, which would otherwise change their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.credit.rule import (
    Credit,
    check_choice,
    per_token,
    token_rewards,
    turn_starts,
    whitened,
)
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Positive, Share


@component(
    Kind.CREDIT,
    "gae",
    source="Schulman et al. 2016; verl compute_gae_advantage_return",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def gae(
    batch: Sequence[Trajectory], *, gamma: Share = 1.0, lam: Share = 1.0, whiten: bool = True
) -> Credit:
    """PPO's advantages over sampled tokens, observations skipped.

    `delta_t = r_t + gamma * V_{t+1} - V_t`, `A_t = delta_t + gamma * lam * A_{t+1}`, with a
    turn's reward at its last token; targets `A + V`. Defaults as in verl, AReaL and RAGEN.
    VAGEN calls this masked GAE; releases without the mask bootstrap from values of tool text.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per token.
        lam: 0 trusts the critic, 1 the sampled return.
        whiten: over all tokens of the batch; the targets stay as they are.

    Raises:
        InputError: a turn without values.
    """
    values = _critic_values(batch, "gae")
    advantages = [_over_tokens(t, v, gamma, lam) for t, v in zip(batch, values, strict=True)]
    returns = [a + v for a, v in zip(advantages, values, strict=True)]
    return Credit(whitened(advantages) if whiten else advantages, returns)


@component(
    Kind.CREDIT,
    "turn_gae",
    source="AReaL trainer/ppo/gae.py (first); VAGEN compute_turn_wise_gae_advantage_return (last)",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def turn_gae(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    value_at: Literal["first", "last"] = "first",
    whiten: bool = True,
) -> Credit:
    """PPO's advantages over turns: all tokens of a turn share the turn's advantage.

    Two releases differ in where a turn's value is read. "first" (AReaL): before the turn's
    first token, the value of the state in which it acts; every token's target is the turn's
    return. "last" (VAGEN): before its last token, when most of the reply is known; the critic
    is trained there only, and whitening counts each turn once.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per turn.
        lam: of the recursion over turns.
        value_at: which token's value stands for the turn.
        whiten: over all tokens of the batch for "first", over its turns for "last".

    Raises:
        InputError: a turn without values, or an unknown `value_at`.
    """
    check_choice("turn_gae", "value_at", value_at, ("first", "last"))
    per_turn, advantages, returns = [], [], []
    for trajectory, values in zip(batch, _critic_values(batch, "turn_gae"), strict=True):
        ends = _turn_ends(trajectory)
        read = values[ends if value_at == "last" else turn_starts(trajectory)]
        found = _recursion(trajectory.rewards, read, _bootstrap(trajectory), gamma, lam)
        per_turn.append(found)
        advantages.append(per_token(trajectory, found))
        if value_at == "last":
            targets = torch.full_like(values, torch.nan)
            targets[ends] = found + read
        else:
            targets = per_token(trajectory, found + read)
        returns.append(targets)
    if whiten and value_at == "last":
        advantages = [per_token(t, a) for t, a in zip(batch, whitened(per_turn), strict=True)]
    elif whiten:
        advantages = whitened(advantages)
    return Credit(advantages, returns)


@component(
    Kind.CREDIT,
    "bilevel_gae",
    source="VAGEN; RAGEN compute_bi_level_gae_advantage_return",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def bilevel_gae(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    turn_gamma: Share = 0.95,
    turn_lam: Share = 1.0,
    whiten: bool = True,
) -> Credit:
    """GAE over turns sets each turn's return, then GAE over the tokens inside each turn.

    The turn level reads the values at the turns' last tokens; the token level restarts in
    each turn, with the turn's return `a_k + V(e_k)` as its only reward. Both releases use one
    lam for both levels, here there are two. RAGEN finds a turn's end by a nonzero reward and
    so loses turns without one; here the ends are those of the turns, as in VAGEN.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per token, inside a turn.
        lam: of the recursion over tokens.
        turn_gamma: discount per turn.
        turn_lam: of the recursion over turns.
        whiten: over all tokens of the batch; the targets stay as they are.

    Raises:
        InputError: a turn without values.
    """
    advantages, returns = [], []
    for trajectory, values in zip(batch, _critic_values(batch, "bilevel_gae"), strict=True):
        ends = values[_turn_ends(trajectory)]
        last = _bootstrap(trajectory)
        turn_returns = ends + _recursion(trajectory.rewards, ends, last, turn_gamma, turn_lam)
        inside = []
        for part, target in zip(
            values.split([turn.tokens for turn in trajectory.turns]),
            turn_returns.tolist(),
            strict=True,
        ):
            rewards = [0.0] * (len(part) - 1) + [target]
            inside.append(_recursion(rewards, part, 0.0, gamma, lam))
        advantages.append(torch.cat(inside))
        returns.append(advantages[-1] + values)
    return Credit(whitened(advantages) if whiten else advantages, returns)


@component(
    Kind.CREDIT,
    "length_adaptive_gae",
    source="VAPO 2025; NeMo RL advantage_estimator.py; AReaL vapo_length_adaptive_gae (lam)",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def length_adaptive_gae(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 1.0,
    alpha: Positive = 0.05,
    over: Literal["tokens", "turns"] = "tokens",
    whiten: bool = True,
) -> Credit:
    """GAE whose lam grows with the rollout: `max(0, 1 - 1 / (alpha * length))`.

    Critic targets have lam 1 (Monte Carlo); AReaL's release uses one lam for both. An alpha
    made for tokens gives lam 0 to every rollout of up to `1 / alpha` turns.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per token or per turn.
        alpha: longer rollouts than `1 / alpha` look further than one step ahead.
        over: what one step of the recursion is, and what length counts; over turns, a turn's
            value is read before its first token and all its tokens share advantage and target.
        whiten: over all tokens of the batch; the targets stay as they are.

    Raises:
        InputError: a turn without values, an alpha that is not positive, an unknown `over`.
    """
    check_choice("length_adaptive_gae", "over", over, ("tokens", "turns"))
    if alpha <= 0:
        raise InputError(f"length_adaptive_gae has alpha = {alpha}; use a number above 0, as 0.05.")
    advantages, returns = [], []
    for trajectory, values in zip(batch, _critic_values(batch, "length_adaptive_gae"), strict=True):
        if over == "tokens":
            rewards, read = token_rewards(trajectory), values
        else:
            rewards, read = trajectory.rewards, values[turn_starts(trajectory)]
        lam = max(0.0, 1.0 - 1.0 / (alpha * len(rewards)))
        last = _bootstrap(trajectory)
        found = _recursion(rewards, read, last, gamma, lam)
        targets = _recursion(rewards, read, last, gamma, 1.0) + read
        if over == "turns":
            found, targets = per_token(trajectory, found), per_token(trajectory, targets)
        advantages.append(found)
        returns.append(targets)
    return Credit(whitened(advantages) if whiten else advantages, returns)


@component(
    Kind.CREDIT,
    "decoupled_gae",
    source="Yuan et al. 2025 (VC-PPO); VAPO 2025; NeMo RL advantage_estimator.py",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def decoupled_gae(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 1.0,
    lam: Share = 0.95,
    critic_lam: Share = 1.0,
    whiten: bool = True,
) -> Credit:
    """GAE over tokens with one lam for the policy and another, 1, for the critic's targets.

    Targets with lam 1 carry a reward at the end to the first token undiminished, however
    long the rollout; the policy's lam below 1 keeps the variance down.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per token.
        lam: of the policy's advantages.
        critic_lam: of the critic's targets.
        whiten: over all tokens of the batch; the targets stay as they are.

    Raises:
        InputError: a turn without values.
    """
    values = _critic_values(batch, "decoupled_gae")
    pairs = list(zip(batch, values, strict=True))
    advantages = [_over_tokens(t, v, gamma, lam) for t, v in pairs]
    returns = [_over_tokens(t, v, gamma, critic_lam) + v for t, v in pairs]
    return Credit(whitened(advantages) if whiten else advantages, returns)


def _recursion(
    rewards: Sequence[float], values: Tensor, bootstrap: float, gamma: float, lam: float
) -> Tensor:
    """Return GAE over n steps: [n], [n] -> [n]."""
    following, running = bootstrap, 0.0
    found: list[float] = []
    for reward, value in zip(reversed(rewards), reversed(values.tolist()), strict=True):
        running = reward + gamma * following - value + gamma * lam * running
        following = value
        found.append(running)
    return torch.tensor(found[::-1], dtype=torch.float64)


def _over_tokens(trajectory: Trajectory, values: Tensor, gamma: float, lam: float) -> Tensor:
    return _recursion(token_rewards(trajectory), values, _bootstrap(trajectory), gamma, lam)


def _bootstrap(trajectory: Trajectory) -> float:
    """Return the value after the last step: what a cut-off rollout might still have earned."""
    return trajectory.bootstrap if trajectory.truncated else 0.0


def _turn_ends(trajectory: Trajectory) -> Tensor:
    """Return the index of each turn's last token, [K]."""
    return torch.tensor([turn.tokens for turn in trajectory.turns]).cumsum(0) - 1


def _critic_values(batch: Sequence[Trajectory], rule: str) -> list[Tensor]:
    """Return the critic's values of each rollout, [T_i]."""
    found = []
    for trajectory in batch:
        values: list[float] = []
        for k, turn in enumerate(trajectory.turns):
            if len(turn.values) != turn.tokens:
                raise InputError(
                    f"{rule} needs a critic's value before each token, but turn {k} of "
                    f"{trajectory.key} has {len(turn.values)} for {turn.tokens} tokens: "
                    "a critic is missing; set `rl.critic`."
                )
            values += turn.values
        found.append(torch.tensor(values, dtype=torch.float64))
    return found
