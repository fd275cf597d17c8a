"""Rewards of predicted boxes, and what they do to the size of boxes.

A box is a rectangle in any unit of length. `hit` looks at the centre alone, `iou` at the overlap,
and `size_agreement` at the sides alone. Which sizes a reward favours depends on how the centres of
predictions scatter: `expected_reward` integrates over that, and `favoured_size` finds the best one.

Source: Zhou et al. 2025 (GUI-G1): trained on hits, boxes shrink; trained on overlap, they grow; a
reward for the size of the box stops both. The formula of the last one is written from memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with sides above 0."""

    x: float  # of the centre
    y: float
    width: float
    height: float


Reward = Callable[[Box, Box], float]
"""(predicted, true) -> reward in [0, 1]."""


def hit(predicted: Box, true: Box) -> float:
    """Return 1 if the centre of the prediction lies in the true box, else 0."""
    across = abs(predicted.x - true.x) <= true.width / 2
    return float(across and abs(predicted.y - true.y) <= true.height / 2)


def iou(predicted: Box, true: Box) -> float:
    """Return the area of the intersection over that of the union."""
    width = _shared(predicted.x, predicted.width, true.x, true.width)
    shared = width * _shared(predicted.y, predicted.height, true.y, true.height)
    union = predicted.width * predicted.height + true.width * true.height - shared
    return shared / union


def size_agreement(predicted: Box, true: Box) -> float:
    """Return `4 / (w/w' + w'/w + h/h' + h'/h)`: 1 for equal sides, less for larger and smaller."""
    wide, high = predicted.width / true.width, predicted.height / true.height
    return 4 / (wide + 1 / wide + high + 1 / high)


def combined(*rewards: Reward) -> Reward:
    """Return the mean of rewards."""
    return lambda predicted, true: sum(r(predicted, true) for r in rewards) / len(rewards)


def expected_reward(reward: Reward, size: float, scatter: float, *, points: int = 41) -> float:
    """Return the expected reward of square predictions of a true square of side 1.

    Args:
        reward: of one prediction.
        size: side of the predictions.
        scatter: standard deviation of their centres, in each direction, around the true one.
        points: of the midpoint rule over 3 standard deviations, in each direction.
    """
    true = Box(0, 0, 1, 1)
    places = [scatter * 3 * (2 * (i + 0.5) / points - 1) for i in range(points)]
    weights = [math.exp(-0.5 * (3 * (2 * (i + 0.5) / points - 1)) ** 2) for i in range(points)]
    total = sum(
        wx * wy * reward(Box(x, y, size, size), true)
        for x, wx in zip(places, weights, strict=True)
        for y, wy in zip(places, weights, strict=True)
    )
    return total / sum(weights) ** 2


def favoured_size(
    reward: Reward, scatter: Callable[[float], float], sizes: Sequence[float]
) -> float:
    """Return the size of the highest expected reward, the smallest of equals.

    Args:
        reward: of one prediction.
        scatter: of the centres, by the size of the predictions; a policy that is unsure of the
            place often is so of the size.
        sizes: to choose from, rising; at the first or last one, the reward has no limit there.
    """
    return max(sizes, key=lambda size: (expected_reward(reward, size, scatter(size)), -size))


def _shared(a: float, width: float, b: float, other: float) -> float:
    """Return the length of the overlap of two intervals, by their centres and lengths."""
    return max(0.0, min(a + width / 2, b + other / 2) - max(a - width / 2, b - other / 2))
