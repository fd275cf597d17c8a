"""Policy losses per token, and how rollouts are weighted.

A loss maps log-probabilities and advantages to one number per trained token. How
tokens add up is a weight per token, fixed for the whole batch before it is split:
the weight belongs to the rollout, so that splitting an episode into more rows, or
a batch into micro-batches, changes no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.rows import Row

MAX_LOG_RATIO = 20.0  # exp beyond this overflows; such tokens are clipped anyway


class Aggregation(StrEnum):
    """How the tokens of a batch add up to one loss."""

    TOKEN_MEAN = "token-mean"  # every trained token of the batch weighs the same
    ROLLOUT_TOKEN_MEAN = "rollout-token-mean"  # every rollout weighs the same
    ROLLOUT_TOKEN_SUM = "rollout-token-sum"  # sum over a rollout's tokens, mean over rollouts


def token_weights(rows: Sequence[Row], aggregation: Aggregation) -> Mapping[Key, float]:
    """The weight of each trained token, by rollout, over the whole batch.

    Rollouts without trained tokens do not count.
    """
    tokens: dict[Key, int] = {}
    for row in rows:
        if row.trained:
            tokens[row.key] = tokens.get(row.key, 0) + row.trained
    total, rollouts = sum(tokens.values()), len(tokens)
    match aggregation:
        case Aggregation.TOKEN_MEAN:
            return dict.fromkeys(tokens, 1 / max(total, 1))
        case Aggregation.ROLLOUT_TOKEN_MEAN:
            return {key: 1 / (rollouts * count) for key, count in tokens.items()}
        case Aggregation.ROLLOUT_TOKEN_SUM:
            return dict.fromkeys(tokens, 1 / max(rollouts, 1))


def ratio(lp: Tensor, lp_old: Tensor) -> Tensor:
    """Importance ratio per token."""
    return torch.exp(torch.clamp(lp - lp_old, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def policy_gradient(lp: Tensor, lp_old: Tensor, advantage: Tensor) -> Tensor:
    """REINFORCE: minus advantage times log-probability (Williams 1992); shape [T].

    `lp_old` does not enter: one update per batch, no clipping.
    """
    return -advantage * lp


def ppo_clip(
    lp: Tensor,
    lp_old: Tensor,
    advantage: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
) -> Tensor:
    """Clipped surrogate (Schulman et al. 2017) with dual clip (Ye et al. 2020); shape [T].

    Args:
        lp, lp_old, advantage: shape [T].
        low, high: the ratio is clipped to [1 - low, 1 + high].
        dual: bound on the loss of negative advantages, in multiples of |advantage|.
    """
    rho = ratio(lp, lp_old)
    loss = torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - low, 1 + high))
    if dual is None:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -advantage * dual), loss)


def loop_clip(lp: Tensor, lp_old: Tensor, advantage: Tensor, *, epsilon: float = 0.1) -> Tensor:
    """LOOP's clipped surrogate at token level; shape [T].

    Source: Chen et al. 2025, as released in ml-loop: the ratio is bounded by
    [1 / (1 + epsilon), 1 + epsilon], symmetric in logarithms, not [1 - e, 1 + e].
    """
    bound = torch.where(advantage >= 0, (1 + epsilon) * advantage, advantage / (1 + epsilon))
    return -torch.minimum(ratio(lp, lp_old) * advantage, bound)
