"""Rotary positions: how far each pair of features turns per token, for every known scaling.

All layers rotate with one operation, which pairs feature i of a head with feature i + d/2. Models
that pair neighbours, or that rotate only a part of a head, have the rows of their query and key
weights reordered when they are read (`feature_order`), which changes no score; features that do
not turn get the angle zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from palaestra.models.local.architecture import Rotary, Scaling


def tables(
    rotary: Rotary, head_dim: int, positions: int, *, context: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of all angles, [positions, head_dim / 2] each.

    Args:
        rotary: of a layer.
        head_dim: features of a head.
        positions: how many, from 0 on.
        context: tokens of the longest sequence; longrope has other factors for long ones.
        like: gives the number format and the device.
    """
    wide = torch.promote_types(like.dtype, torch.float32)
    count = torch.arange(positions, dtype=wide, device=like.device)
    angles = torch.outer(count, _speeds(rotary, head_dim, context, count))
    cos, sin = angles.cos(), angles.sin()
    if rotary.magnitude != 1:
        cos, sin = cos * rotary.magnitude, sin * rotary.magnitude
    still = head_dim // 2 - angles.shape[1]
    if still:
        cos = torch.cat([cos, cos.new_ones(positions, still)], dim=1)
        sin = torch.cat([sin, sin.new_zeros(positions, still)], dim=1)
    return cos.to(like.dtype), sin.to(like.dtype)


def feature_order(rotary: Rotary, head_dim: int) -> list[int] | None:
    """Return which feature of the model each feature of our heads is; None if they are the same."""
    turning = int(head_dim * rotary.share)
    half = turning // 2
    if rotary.interleaved:
        first, second = list(range(0, turning, 2)), list(range(1, turning, 2))
    else:
        first, second = list(range(half)), list(range(half, turning))
    middle = (head_dim + turning) // 2
    order = [*first, *range(turning, middle), *second, *range(middle, head_dim)]
    return None if order == list(range(head_dim)) else order


def _speeds(rotary: Rotary, head_dim: int, context: int, like: Tensor) -> Tensor:
    """Return the angle of each pair per token, [pairs]."""
    d = int(head_dim * rotary.share)
    plain = rotary.theta ** (
        -torch.arange(0, d, 2, dtype=like.dtype, device=like.device) / max(1, d)
    )
    match rotary.scaling:
        case Scaling.NONE | Scaling.DYNAMIC:
            return plain
        case Scaling.LINEAR:
            return plain / rotary.factor
        case Scaling.LLAMA3:
            return _llama3(rotary, plain)
        case Scaling.YARN:
            return _yarn(rotary, plain, d)
        case Scaling.LONGROPE:
            long = context > rotary.original
            factors = rotary.long_factors if long else rotary.short_factors
            return plain / like.new_tensor(factors)


def _llama3(rotary: Rotary, plain: Tensor) -> Tensor:
    """Slow down pairs with few turns within the original context, as in Llama 3.1."""
    turns = rotary.original * plain / (2 * math.pi)
    smooth = (turns - rotary.low) / (rotary.high - rotary.low)
    between = (1 - smooth) * plain / rotary.factor + smooth * plain
    slowed = torch.where(turns < rotary.low, plain / rotary.factor, plain)
    return torch.where((turns >= rotary.low) & (turns <= rotary.high), between, slowed)


def _yarn(rotary: Rotary, plain: Tensor, d: int) -> Tensor:
    """Slow down pairs along a ramp from those with `high` turns to those with `low` (Peng 2023)."""

    def pair(turns: float) -> float:
        return d * math.log(rotary.original / (turns * 2 * math.pi)) / (2 * math.log(rotary.theta))

    begin, end = pair(rotary.high), pair(rotary.low)
    if rotary.whole:
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, d - 1)
    if begin == end:
        end += 0.001  # a step
    pairs = torch.arange(d // 2, dtype=plain.dtype, device=plain.device)
    ramp = ((pairs - begin) / (end - begin)).clamp(0, 1)
    return plain / rotary.factor * ramp + plain * (1 - ramp)
