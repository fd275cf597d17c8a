"""Rates over several environments: a weighted mean with an interval, and the gap of two means.

Environments are fixed and tasks are sampled within each, so the environments' intervals are
combined: each side of the mean's interval is the root of the summed squares of their distances
on that side (MOVER: Zou and Donner 2008). Unlike a bootstrap, the interval has a width even if
all tasks of an environment ended alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from palaestra.core.errors import InputError
from palaestra.evaluation.statistics.intervals import Interval, mean_interval, wilson

Scores = Mapping[int, float]  # of each task of one environment by its number, within [0, 1]


def rate(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the mean score of the tasks of one environment, within [0, 1].

    The interval is Wilson's if each score is 0 or 1, else a bootstrap over tasks. If all tasks
    have the same score in between, it is 0 to 1: nothing is known.

    Raises:
        InputError: there is no score.
    """
    if not scores:
        raise InputError("The environment has no scored task; evaluate at least one.")
    if all(score in (0.0, 1.0) for score in scores):
        return wilson(round(sum(scores)), len(scores), confidence)
    if len(set(scores)) == 1:
        return Interval(scores[0], 0.0, 1.0, len(scores))
    return mean_interval(scores, confidence=confidence)


def combined(parts: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """Return the weighted mean of independent estimates; weights need not sum to one.

    Raises:
        InputError: there is no estimate, or the numbers of weights and estimates differ.
    """
    if not parts or len(parts) != len(weights):
        raise InputError(
            f"There are {len(parts)} environments and {len(weights)} weights; "
            "give at least one environment, and one weight for each."
        )
    share = [weight / sum(weights) for weight in weights]
    mean = sum(w * p.mean for w, p in zip(share, parts, strict=True))
    below = sqrt(sum((w * (p.mean - p.low)) ** 2 for w, p in zip(share, parts, strict=True)))
    above = sqrt(sum((w * (p.high - p.mean)) ** 2 for w, p in zip(share, parts, strict=True)))
    return Interval(mean, mean - below, mean + above, sum(p.n for p in parts))


def gap(
    a: Mapping[str, Scores],
    b: Mapping[str, Scores],
    weights: Mapping[str, float],
    confidence: float = 0.95,
) -> Interval:
    """Return the mean of `a` minus the mean of `b` over their common environments and tasks.

    Within an environment the two are paired by task, with Newcombe's interval (1998, method 10
    without its correction) and the correlation of the scores; environments are then combined.

    Raises:
        InputError: there is no common task.
    """
    parts: list[Interval] = []
    shares: list[float] = []
    for id in sorted(a.keys() & b.keys()):
        tasks = sorted(a[id].keys() & b[id].keys())
        if tasks:
            parts.append(_paired([a[id][t] for t in tasks], [b[id][t] for t in tasks], confidence))
            shares.append(weights[id])
    if not parts:
        raise InputError("The two have no task in common; compare results on the same tasks.")
    return combined(parts, shares)


def _paired(x: Sequence[float], y: Sequence[float], confidence: float) -> Interval:
    one, other = rate(x, confidence), rate(y, confidence)
    correlation = 0.0
    if np.std(x) > 0 and np.std(y) > 0:
        correlation = float(np.corrcoef(x, y)[0, 1])
    mean = one.mean - other.mean
    down, up = one.mean - one.low, other.high - other.mean
    below = down * down - 2 * correlation * down * up + up * up
    down, up = other.mean - other.low, one.high - one.mean
    above = up * up - 2 * correlation * up * down + down * down
    return Interval(mean, mean - sqrt(max(0.0, below)), mean + sqrt(max(0.0, above)), len(x))
