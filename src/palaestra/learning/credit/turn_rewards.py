"""Turn credit: rewards during the rollout, compared within the group turn by turn.

Rewards of turns come from the environment, from a belief in the right answer (IGPO) or from
the success of the whole (step-level GRPO). Rollouts of a group differ in length: at a turn
that some did not reach, `by_turn` counts them with the value that they ended with, so that
the comparison is always with the whole group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.credit.rule import (
    Credit,
    centred,
    check_groups,
    discounted,
    groups,
    normalised,
    per_token,
    within,
)
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Ddof, NotNegative, Positive, Share


def by_turn(
    batch: Sequence[Trajectory],
    values: Sequence[Sequence[float]],
    ended: Sequence[float],
    reduce: Callable[[Tensor], Tensor],
) -> list[Tensor]:
    """Apply `reduce` ([G] -> [G]) to each group's k-th turns, for every k: [K_i] -> [K_i].

    Args:
        batch: rollouts.
        values: per rollout, one per turn.
        ended: per rollout, its value at turns that it did not reach.
        reduce: such as `centred`.
    """
    found = [torch.zeros(len(own), dtype=torch.float64) for own in values]
    for members in groups([trajectory.group for trajectory in batch]):
        for k in range(max(len(values[i]) for i in members)):
            column = [values[i][k] if k < len(values[i]) else ended[i] for i in members]
            reduced = reduce(torch.tensor(column, dtype=torch.float64))
            for i, value in zip(members, reduced.tolist(), strict=True):
                if k < len(values[i]):
                    found[i][k] = value
    return found


@component(
    Kind.CREDIT,
    "return_to_go",
    source="the critic-free form of turn-level PPO; compare MT-GRPO's cumulative estimator",
    status=Status.OURS,
    needs=[Need.GROUP],
)
def return_to_go(batch: Sequence[Trajectory], *, gamma: Share = 1.0) -> Credit:
    """Return from a turn on minus the group's mean at the same turn.

    A rollout that had ended before the turn counts with its outcome. So, with gamma 1 and no
    rewards but the outcome, this is `drgrpo` whatever the lengths.

    Args:
        batch: rollouts.
        gamma: discount per turn.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "return_to_go")
    return _compared(batch, gamma, centred)


@component(
    Kind.CREDIT,
    "mt_grpo",
    source="Zeng et al. 2025; Multi-Turn-RL-Agent mt_grpo_env_trainer.py ('aae'), two turns",
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.TURN_REWARD],
)
def mt_grpo(
    batch: Sequence[Trajectory], *, c: NotNegative = 1.0, ddof: Ddof = 1, eps: Positive = 1e-4
) -> Credit:
    """Normalised outcome plus the normalised turn rewards that were still to come.

    `A_k = A^O + c * sum_{j >= k} A^T_j`: the outcome and the rewards of each turn index are
    normalised separately over the group; a turn that was not taken counts as reward 0. With
    two turns of which the first is rewarded, this is the release: `A^O + c * A^T` before the
    tool's result, `A^O` after it. A rollout of one turn (no tool result) gets its normalised
    total, as there, on a different scale. More than two turns are our extension: the paper's
    general form was not read.

    Args:
        batch: rollouts with rewards at turns; `outcome` is the outcome reward.
        c: weight of the turn part.
        ddof: 1 divides the variance by n - 1, 0 by n.
        eps: added to the standard deviations, in units of reward.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "mt_grpo")
    reduce = partial(normalised, ddof=ddof, eps=eps)
    keys = [trajectory.group for trajectory in batch]
    outcomes = within([trajectory.outcome for trajectory in batch], keys, reduce)
    totals = within([trajectory.total for trajectory in batch], keys, reduce)
    rewards = [[turn.reward for turn in trajectory.turns] for trajectory in batch]
    turns = by_turn(batch, rewards, [0.0] * len(batch), reduce)
    advantages = []
    for i, trajectory in enumerate(batch):
        later = torch.tensor(discounted(turns[i].tolist(), 1.0), dtype=torch.float64)
        per_turn = outcomes[i] + c * later if len(later) > 1 else totals[i : i + 1]
        advantages.append(per_token(trajectory, per_turn))
    return Credit(advantages)


@component(
    Kind.CREDIT,
    "mt_grpo_cumulative",
    source="Multi-Turn-RL-Agent mt_grpo_env_trainer.py ('cae'), two turns",
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.TURN_REWARD],
)
def mt_grpo_cumulative(
    batch: Sequence[Trajectory], *, gamma: Share = 1.0, ddof: Ddof = 1, eps: Positive = 1e-4
) -> Credit:
    """Return from a turn on, normalised over the group at the same turn.

    A rollout that had ended before the turn counts with its outcome. With two turns of which
    the first is rewarded, this is the release: the normalised `turn + gamma * outcome` before
    the tool's result, the normalised outcome after it. More turns are our extension.

    Args:
        batch: rollouts with rewards at turns.
        gamma: discount per turn.
        ddof: 1 divides the variance by n - 1, 0 by n.
        eps: added to the standard deviations, in units of reward.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "mt_grpo_cumulative")
    return _compared(batch, gamma, partial(normalised, ddof=ddof, eps=eps))


def belief(logprobs: Sequence[float] | Tensor) -> float:
    """Return the probability of an answer: the geometric mean of its tokens' probabilities.

    IGPO's `p_k = exp(mean lp)`, so that long answers are not improbable for their length.

    Args:
        logprobs: of the right answer's tokens, in nats, at least one.

    Raises:
        InputError: no tokens.
    """
    values = torch.as_tensor(logprobs, dtype=torch.float64)
    if not len(values):
        raise InputError("The answer is empty, so it has no belief; give at least one token.")
    return float(values.mean().exp())


def gains(trajectory: Trajectory) -> list[float]:
    """Return IGPO's rewards: how much each turn raised the belief; at the last turn, the outcome.

    Raises:
        InputError: a belief is missing.
    """
    before_last = [trajectory.belief, *(turn.belief for turn in trajectory.turns[:-1])]
    known = [value for value in before_last if value is not None]
    if len(trajectory.turns) > 1 and len(known) < len(before_last):
        raise InputError(
            f"igpo needs the probability of the right answer before and after each turn, but "
            f"{trajectory.key} lacks some; measure it, or choose a rule without beliefs."
        )
    return [after - before for before, after in pairwise(known)] + [trajectory.outcome]


@component(
    Kind.CREDIT,
    "igpo",
    source="IGPO (information gain); its release, core_algos.py at 49a8c4e, norm mode joint",
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.BELIEF],
)
def igpo(
    batch: Sequence[Trajectory], *, gamma: Share = 1.0, ddof: Ddof = 0, eps: Positive = 1e-6
) -> Credit:
    """Gains in the belief in the right answer and outcomes, normalised together, then summed.

    `r_k = p_k - p_{k-1}`, the outcome at the last turn; `a = (r - mean) / (std + eps)` over
    all turns of the group; `A_k = sum_{j >= k} gamma^(j-k) a_j`. Rewards that the environment
    gave to turns are not read. In a run, beliefs are those of the policy that acted, as in the
    release: within a group of one version. The release loses a turn whose gain is exactly 0.

    Args:
        batch: rollouts with beliefs.
        gamma: discount per turn.
        ddof: 0 (the release) divides the variance by n, 1 by n - 1; n counts turns.
        eps: added to the standard deviation, in units of reward.

    Raises:
        GroupTooSmall: a group of one rollout.
        InputError: a belief is missing.
    """
    check_groups(batch, "igpo")
    rewards = [gains(trajectory) for trajectory in batch]
    scaled = _pooled(batch, rewards, partial(normalised, ddof=ddof, eps=eps))
    return Credit(
        [
            per_token(trajectory, discounted(values.tolist(), gamma))
            for trajectory, values in zip(batch, scaled, strict=True)
        ]
    )


@component(
    Kind.CREDIT,
    "igpo_token_baseline",
    source="IGPO (information gain); its first release, core_algos.py at bff163b",
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.BELIEF],
)
def igpo_token_baseline(batch: Sequence[Trajectory]) -> Credit:
    """IGPO as first released: a turn's own gain minus the group's mean at the same token index.

    It differs from the paper: no standard deviation; the return stops at each observation, so
    that a turn gets no credit for what followed it; the baseline compares tokens of equal
    index, which need not belong to the same turn. Here indices count sampled tokens only, and
    rollouts without a token at an index do not count there. A baseline to compare with.

    Raises:
        GroupTooSmall: a group of one rollout.
        InputError: a belief is missing.
    """
    check_groups(batch, "igpo_token_baseline")
    own = [per_token(trajectory, gains(trajectory)) for trajectory in batch]
    keys = [(t.group, index) for t in batch for index in range(t.tokens)]
    compared = within(torch.cat(own) if own else [], keys, centred)
    return Credit(list(compared.split([trajectory.tokens for trajectory in batch])))


@component(
    Kind.CREDIT,
    "step_grpo",
    source="ComputerRL (step-level GRPO), from a digest",
    status=Status.EXPERIMENTAL,
    needs=[Need.GROUP],
)
def step_grpo(batch: Sequence[Trajectory], *, ddof: Ddof = 1, eps: Positive = 1e-6) -> Credit:
    """All turns of a group in one pool, normalised: 1 for a valid turn of a success, else 0.

    Long rollouts weigh more in the mean, and an invalid turn of a success is penalised like a
    failure. Which deviation the authors use is not known.

    Args:
        batch: rollouts; reads `success` and `valid`, no rewards.
        ddof: 1 divides the variance by n - 1, 0 by n; n counts turns.
        eps: added to the standard deviation.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "step_grpo")
    rewards = [[float(t.success and turn.valid) for turn in t.turns] for t in batch]
    scaled = _pooled(batch, rewards, partial(normalised, ddof=ddof, eps=eps))
    return Credit([per_token(t, values) for t, values in zip(batch, scaled, strict=True)])


def _compared(
    batch: Sequence[Trajectory], gamma: float, reduce: Callable[[Tensor], Tensor]
) -> Credit:
    """Return the discounted return from each turn on, compared turn by turn."""
    following = [discounted(trajectory.rewards, gamma) for trajectory in batch]
    ended = [trajectory.outcome for trajectory in batch]
    per_turn = by_turn(batch, following, ended, reduce)
    return Credit([per_token(t, values) for t, values in zip(batch, per_turn, strict=True)])


def _pooled(
    batch: Sequence[Trajectory],
    values: Sequence[Sequence[float]],
    reduce: Callable[[Tensor], Tensor],
) -> tuple[Tensor, ...]:
    """Apply `reduce` to the values of all turns of a group at once: [K_i] -> [K_i]."""
    pairs = list(zip(batch, values, strict=True))
    keys = [trajectory.group for trajectory, own in pairs for _ in own]
    flat = [value for own in values for value in own]
    return within(flat, keys, reduce).split([len(own) for own in values])
