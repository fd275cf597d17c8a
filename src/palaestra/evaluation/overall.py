"""Rates over several worlds: a weighted mean with an interval, and the gap between two of them.

Worlds are fixed and tasks are drawn within each, so the worlds' own intervals are combined:
each side of the mean's interval is the root of the summed squares of the worlds' own
distances on that side (MOVER: Zou and Donner 2008). Unlike a bootstrap, this keeps
a width where every task of a world ended alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from palaestra.core.errors import InputError
from palaestra.evaluation.statistics import Interval, mean_interval, wilson

Scores = Mapping[int, float]  # of each task of one world by its number, within [0, 1]


def rate(scores: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean score of the tasks of one world, within [0, 1].

    Wilson's interval where each score is 0 or 1; else a bootstrap over tasks, and nothing is
    known (0 to 1) of a world whose tasks all have one score in between.

    Raises:
        InputError: no score at all.
    """
    if not scores:
        raise InputError("A world without any scored task has no success rate.")
    if all(score in (0.0, 1.0) for score in scores):
        return wilson(round(sum(scores)), len(scores), confidence)
    if len(set(scores)) == 1:
        return Interval(scores[0], 0.0, 1.0, len(scores))
    return mean_interval(scores, confidence=confidence)


def combined(parts: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """The weighted mean of independent estimates; weights need not sum to one.

    Raises:
        InputError: no estimate, or as many weights as estimates are not there.
    """
    if not parts or len(parts) != len(weights):
        raise InputError("A weighted mean needs at least one world, and a weight for each.")
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
    """Mean of `a` minus mean of `b` over the worlds and tasks that both have scores of.

    Within a world the two are paired by task: their interval is Newcombe's (1998, method 10
    without its correction), with the correlation of the scores; the worlds are then combined.

    Raises:
        InputError: they have no task in common.
    """
    parts: list[Interval] = []
    of: list[float] = []
    for world in sorted(a.keys() & b.keys()):
        tasks = sorted(a[world].keys() & b[world].keys())
        if tasks:
            parts.append(
                _paired([a[world][t] for t in tasks], [b[world][t] for t in tasks], confidence)
            )
            of.append(weights[world])
    if not parts:
        raise InputError("They have no task in common, so nothing can be said of their difference.")
    return combined(parts, of)


def _paired(x: Sequence[float], y: Sequence[float], confidence: float) -> Interval:
    one, other = rate(x, confidence), rate(y, confidence)
    alike = 0.0
    if np.std(x) > 0 and np.std(y) > 0:
        alike = float(np.corrcoef(x, y)[0, 1])
    mean = one.mean - other.mean
    down, up = one.mean - one.low, other.high - other.mean
    below = down * down - 2 * alike * down * up + up * up
    down, up = other.mean - other.low, one.high - one.mean
    above = up * up - 2 * alike * up * down + down * down
    return Interval(mean, mean - sqrt(max(0.0, below)), mean + sqrt(max(0.0, above)), len(x))
