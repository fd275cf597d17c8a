"""Credit from returns alone: a rollout, or what followed a token, against a baseline.

No critic is needed. Rules that compare the rollouts of a group read `Trajectory.total` and
compare it within equal `Trajectory.group`; equal returns get exactly zero. Rules with a
return-to-go put each turn's reward at the turn's last token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.rule import (
    Credit,
    broadcast,
    centred,
    check_choice,
    check_groups,
    discounted,
    normalised,
    per_token,
    token_rewards,
    whitened,
    within,
)
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Ddof, Decay, Positive, Share

Axis = Literal["token", "turn"]
"""The unit of one step of the discount."""


@component(
    Kind.CREDIT,
    "reinforce",
    source="Williams 1992; verl compute_policy_loss_reinforce",
    status=Status.RELEASE,
    when={
        Need.GROUP: lambda options: options["baseline"] == "group",
        Need.OTHERS: lambda options: options["baseline"] == "batch",
    },
)
def reinforce(
    batch: Sequence[Trajectory],
    *,
    baseline: Literal["none", "batch", "group"] = "none",
    gamma: Share = 1.0,
    axis: Axis = "token",
) -> Credit:
    """Return-to-go minus a baseline that does not include the rollout itself.

    `G_t = r_t + gamma * G_{t+1}` over sampled tokens, `A_t = G_t - b`. Old copies of verl
    restart the return at each observation, which cuts credit between turns; here it continues
    across turns.

    Args:
        batch: rollouts.
        baseline: "none" is 0; "batch" and "group" are the mean `total` of the other rollouts
            of the batch or of the group.
        gamma: discount, in [0, 1].
        axis: whether gamma applies per token or per turn; per turn, a turn's tokens share
            one return.

    Raises:
        GroupTooSmall: a baseline of "the others" where there are none.
        InputError: an unknown baseline or axis.
    """
    check_choice("reinforce", "baseline", baseline, ("none", "batch", "group"))
    totals = _totals(batch)
    baselines = torch.zeros_like(totals)
    if baseline == "group":
        check_groups(batch, "reinforce with baseline 'group'")
        baselines = within(totals, _groups(batch), _mean_of_others)
    elif baseline == "batch":
        if len(batch) < 2:
            raise GroupTooSmall(
                "reinforce with baseline 'batch' needs batches of at least 2 rollouts, but got "
                f"{len(batch)}; set rl.group to 2 or more."
            )
        baselines = _mean_of_others(totals)
    following = _returns_to_go(batch, gamma, axis, "reinforce")
    return Credit([g - b for g, b in zip(following, baselines, strict=True)])


@component(
    Kind.CREDIT,
    "running",
    source="Williams 1992; Sutton & Barto 1998, section 2.8 (reinforcement comparison)",
    status=Status.PAPER,
)
def running(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 1.0,
    axis: Axis = "token",
    decay: Decay = 0.95,
    state: Mapping[str, float] | None = None,
) -> Credit:
    """Return-to-go minus a running mean of earlier batches' returns.

    `A_t = G_t - b`, then `b <- decay * b + (1 - decay) * mean(total)`: the batch is judged by
    the baseline of earlier batches. The first batch has none: its baseline is 0, and its mean
    starts the running mean. All tasks share one baseline.

    Args:
        batch: rollouts.
        gamma: discount, in [0, 1].
        axis: whether gamma applies per token or per turn.
        decay: weight of the past, in [0, 1).
        state: `Credit.state` of the previous batch; without it, the baseline restarts.

    Raises:
        InputError: a state that this rule did not write, or an unknown axis.
    """
    if state and "baseline" not in state:
        raise InputError(
            f"running cannot read the state {dict(state)}: it holds no 'baseline'; "
            "pass the state of an earlier batch, or None."
        )
    before = state["baseline"] if state else None
    following = _returns_to_go(batch, gamma, axis, "running")
    advantages = [g - (before or 0.0) for g in following]
    if not batch:
        return Credit(advantages, state=dict(state or {}))
    mean = float(_totals(batch).mean())
    after = mean if before is None else decay * before + (1.0 - decay) * mean
    return Credit(advantages, state={"baseline": after})


@component(
    Kind.CREDIT,
    "reinforce++",
    source="Hu 2025; verl compute_reinforce_plus_plus_outcome_advantage",
    status=Status.RELEASE,
)
def reinforce_plus_plus(
    batch: Sequence[Trajectory], *, gamma: Share = 1.0, axis: Axis = "token"
) -> Credit:
    """Return-to-go, whitened over all sampled tokens of the batch.

    `(G - mean) / sqrt(var1 + 1e-8)`, as in verl. A batch that mixes tasks therefore credits
    rollouts for easy tasks.

    Args:
        batch: rollouts.
        gamma: discount, in [0, 1].
        axis: whether gamma applies per token (verl) or per turn.

    Raises:
        InputError: an unknown axis.
    """
    return Credit(whitened(_returns_to_go(batch, gamma, axis, "reinforce++")))


@component(
    Kind.CREDIT,
    "remax",
    source="Li et al. 2024 (ReMax); verl compute_remax_outcome_advantage",
    status=Status.RELEASE,
    needs=[Need.GREEDY],
)
def remax(batch: Sequence[Trajectory]) -> Credit:
    """Return-to-go minus the return of the greedy rollout of the same task.

    Undiscounted, as in verl.

    Raises:
        InputError: a rollout without a greedy return.
    """
    advantages = []
    for trajectory, following in zip(
        batch, _returns_to_go(batch, 1.0, "token", "remax"), strict=True
    ):
        if trajectory.greedy is None:
            raise InputError(
                f"remax needs the return of a greedy rollout of each task, but {trajectory.key} "
                "has none; add one greedy rollout per task, or choose rloo."
            )
        advantages.append(following - trajectory.greedy)
    return Credit(advantages)


@component(
    Kind.CREDIT,
    "rloo",
    source="Kool et al. 2019; Ahmadian et al. 2024; verl compute_rloo_outcome_advantage",
    status=Status.RELEASE,
    needs=[Need.GROUP],
)
def rloo(batch: Sequence[Trajectory]) -> Credit:
    """Return minus the mean return of the group's other rollouts.

    `A_i = G / (G - 1) * (R_i - mean)`, on all tokens of the rollout; a group's advantages sum
    to zero. verl leaves the return of a group of one unchanged; here that is an error.

    Raises:
        GroupTooSmall: a group of one, where "the others" do not exist.
    """
    check_groups(batch, "rloo")
    return broadcast(batch, within(_totals(batch), _groups(batch), _leave_one_out))


@component(
    Kind.CREDIT,
    "grpo",
    source="Shao et al. 2024 (GRPO); verl compute_grpo_outcome_advantage; TRL GRPOTrainer",
    status=Status.RELEASE,
    needs=[Need.GROUP],
)
def grpo(
    batch: Sequence[Trajectory],
    *,
    ddof: Ddof = 1,
    eps: Positive = 1e-6,
    scale: Literal["group", "batch", "none"] = "group",
) -> Credit:
    """Return in standard deviations from the group's mean.

    `A_i = (R_i - mean) / (std + eps)` on all tokens of the rollout. verl: ddof 1, eps 1e-6;
    TRL: ddof 1, eps 1e-4 and the three scales; ml-loop and MARFT: ddof 0. verl leaves the
    return of a group of one unchanged; here that is an error.

    Args:
        batch: rollouts.
        ddof: 1 divides the variance by n - 1, 0 by n.
        eps: added to the standard deviation, in units of reward.
        scale: whose standard deviation divides: the group's, the whole batch's (Lite-PPO),
            or none (then this is `drgrpo`).

    Raises:
        GroupTooSmall: a group of one.
        InputError: an unknown scale.
    """
    check_choice("grpo", "scale", scale, ("group", "batch", "none"))
    check_groups(batch, "grpo")
    totals, keys = _totals(batch), _groups(batch)
    if scale == "group":
        return broadcast(batch, within(totals, keys, partial(normalised, ddof=ddof, eps=eps)))
    advantages = within(totals, keys, centred)
    if scale == "batch" and batch:
        advantages = advantages / (totals.std(correction=ddof) + eps)
    return broadcast(batch, advantages)


@component(
    Kind.CREDIT,
    "drgrpo",
    source="Liu et al. 2025 (Dr.GRPO); verl norm_adv_by_std_in_grpo = False; TRL",
    status=Status.RELEASE,
    needs=[Need.GROUP],
)
def drgrpo(batch: Sequence[Trajectory]) -> Credit:
    """Return minus the group's mean, not divided by its standard deviation.

    Equals `rloo` times (G - 1) / G. The method's other half is a loss divided by a constant
    length; one half alone is not Dr.GRPO.

    Raises:
        GroupTooSmall: a group of one.
    """
    check_groups(batch, "drgrpo")
    return broadcast(batch, within(_totals(batch), _groups(batch), centred))


@component(
    Kind.CREDIT,
    "broadcast",
    source="Luo et al. 2025 (Agent Lightning); its rollout_level_advantage.py and v0.x daemon.py",
    status=Status.RELEASE,
    needs=[Need.GROUP],
)
def rollout_broadcast(
    batch: Sequence[Trajectory], *, ddof: Ddof = 1, eps: Positive = 1e-6, legacy: bool = False
) -> Credit:
    """Group-normalised return with one vote per rollout, on all tokens of all its calls.

    The release's version 1 computes the advantage once per rollout and copies it to its rows.
    Before (and in the paper) every model call was a sample of its own with the rollout's
    return, so that rollouts with more calls weigh more in the group's mean and deviation.

    Args:
        batch: rollouts.
        ddof: 1 divides the variance by n - 1, 0 by n; n counts votes.
        eps: added to the standard deviation, in units of reward.
        legacy: every call votes.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "broadcast")
    votes = [len(t.turns) if legacy else 1 for t in batch]
    return by_votes(batch, votes, partial(normalised, ddof=ddof, eps=eps))


def by_votes(
    batch: Sequence[Trajectory], votes: Sequence[int], reduce: Callable[[Tensor], Tensor]
) -> Credit:
    """Apply `reduce` ([n] -> [n]) to each group's returns, each counted once per vote.

    Args:
        votes: per rollout, at least 1.
        votes: of each rollout, at least 1.
        reduce: such as `centred`; its result goes to all tokens of the rollout.
    """
    counts = torch.tensor(votes, dtype=torch.int64)
    returns = _totals(batch).repeat_interleave(counts)
    keys = [t.group for t, n in zip(batch, votes, strict=True) for _ in range(n)]
    return broadcast(batch, within(returns, keys, reduce)[counts.cumsum(0) - counts])


def _totals(batch: Sequence[Trajectory]) -> Tensor:
    return torch.tensor([trajectory.total for trajectory in batch], dtype=torch.float64)


def _groups(batch: Sequence[Trajectory]) -> list[str]:
    return [trajectory.group for trajectory in batch]


def _leave_one_out(values: Tensor) -> Tensor:
    """Subtract the mean of the others: [n] -> [n], n at least 2."""
    return centred(values) * (len(values) / (len(values) - 1))


def _mean_of_others(values: Tensor) -> Tensor:
    return values - _leave_one_out(values)


def _returns_to_go(
    batch: Sequence[Trajectory], gamma: float, axis: Axis, rule: str
) -> list[Tensor]:
    """Return the discounted return from each token on, [T_i]."""
    check_choice(rule, "axis", axis, ("token", "turn"))
    found = []
    for trajectory in batch:
        if axis == "token":
            following = discounted(token_rewards(trajectory), gamma)
            found.append(torch.tensor(following, dtype=torch.float64))
        else:
            found.append(per_token(trajectory, discounted(trajectory.rewards, gamma)))
    return found
