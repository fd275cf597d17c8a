"""The input of losses and corrections: the trained tokens of a micro-batch, flat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp beyond this overflows; such tokens are clipped anyway


@dataclass(frozen=True, slots=True)
class Tokens:
    """M trained tokens; all tensors have shape [M]."""

    lp: Tensor  # under the present weights, with gradient
    lp_old: Tensor  # under the weights at the start of the update (the proximal policy)
    advantage: Tensor
    turn: Tensor  # int64: which turn a token belongs to, numbered within the micro-batch
    rollout: Tensor  # int64: which rollout, likewise
    lp_beh: Tensor  # under the policy that sampled, as the sampler recorded them
    version: Tensor  # int64: weights' version that sampled the token
    call: Tensor | None = None  # int64: index of the token's model call in its rollout
    lp_ref: Tensor | None = None  # under the frozen reference policy
    divergence: Tensor | None = None  # from the teacher, with gradient, where a student learns
    current: int = 0  # the version of the weights under training: one ahead of the last finished
    proximal: int = 0  # the version of lp_old


TokenLoss = Callable[[Tokens], Tensor]
"""Loss per token [M], to be weighted and summed by the learner."""


class Unit(StrEnum):
    """The unit of one importance ratio."""

    TOKEN = "token"
    TURN = "turn"
    ROLLOUT = "rollout"


def ratio(lp: Tensor, lp_old: Tensor) -> Tensor:
    """Return the importance ratio per token."""
    return torch.exp(torch.clamp(lp - lp_old, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def unit_ids(tokens: Tokens, unit: Unit) -> Tensor:
    """Return which unit each token belongs to, [M]."""
    match unit:
        case Unit.TOKEN:
            return torch.arange(len(tokens.lp), device=tokens.lp.device)
        case Unit.TURN:
            return tokens.turn
        case Unit.ROLLOUT:
            return tokens.rollout


def unit_sum(values: Tensor, ids: Tensor) -> Tensor:
    """Sum over each token's unit, at every token: [M] -> [M]; differentiable."""
    _, where = torch.unique(ids, return_inverse=True)
    sums = values.new_zeros(int(where.max()) + 1 if len(where) else 0)
    return sums.index_add(0, where, values)[where]


def unit_mean(values: Tensor, ids: Tensor) -> Tensor:
    """Average over each token's unit, at every token: [M] -> [M]; differentiable."""
    return unit_sum(values, ids) / unit_sum(torch.ones_like(values), ids)
