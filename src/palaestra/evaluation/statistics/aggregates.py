"""Scores of several training runs on several tasks, aggregated to one number with an interval.

A table of scores has a row per run (training seed) and a column per task. The stratified
bootstrap resamples runs within each task, so its intervals cover other training seeds on these
tasks; with `resample_tasks` it resamples tasks too, and covers other such tasks as well. With few
runs it is too narrow: a nominal 95 % interval of a mean over ten tasks contained the truth in
82 % of 300 simulations with 3 runs, 91 % with 5, 90 % with 10 and 95 % with 20.

Source: Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice" (rliable).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import Interval

Array = NDArray[np.float64]
Task = TypeVar("Task", int, str)
Statistic = Callable[[Array], Array]
"""Maps tables, shape [..., runs, tasks], to a number or a vector per table."""

CHUNK = 4_000_000  # values of resampled tables held in memory at once


def score_table(
    runs: Sequence[Mapping[Task, float]],
) -> tuple[Array, list[Task]]:
    """Build a table of scores from each run's scores by task.

    Args:
        runs: for each training seed the score of each task, e.g. from `task_scores`.

    Returns:
        the table, shape [runs, tasks], and the tasks for which every run has a score.

    Raises:
        GroupTooSmall: no run, or no task that all runs share.
    """
    common = set(runs[0]).intersection(*runs[1:]) if runs else set()
    if not common:
        raise GroupTooSmall(
            f"The {len(runs)} runs share no task with a score; evaluate them on the same tasks."
        )
    tasks = sorted(common)
    return np.array([[run[task] for task in tasks] for run in runs], dtype=np.float64), tasks


def interquartile_mean(tables: Array) -> Array:
    """Return the mean of the middle half of all scores of each table.

    Args:
        tables: shape [..., runs, tasks].

    Returns:
        shape [...]; a quarter of the scores (rounded down) is trimmed at either end.
    """
    scores = np.sort(tables.reshape(*tables.shape[:-2], -1), axis=-1)
    cut = scores.shape[-1] // 4
    middle: Array = scores[..., cut : scores.shape[-1] - cut].mean(axis=-1)
    return middle


def mean(tables: Array) -> Array:
    """Return the mean of all scores of each table, shape [...]."""
    found: Array = tables.mean(axis=(-2, -1))
    return found


def median(tables: Array) -> Array:
    """Return the median over tasks of their mean over runs, shape [...]."""
    found: Array = np.median(tables.mean(axis=-2), axis=-1)
    return found


def optimality_gap(tables: Array) -> Array:
    """Return how far the scores, clipped at 1 (solved), are below 1 on average; shape [...]."""
    found: Array = 1 - np.minimum(tables, 1).mean(axis=(-2, -1))
    return found


def performance_profile(thresholds: Sequence[float]) -> Statistic:
    """Make a statistic: the share of scores above each threshold, shape [..., thresholds]."""

    def profile(tables: Array) -> Array:
        shares = [(tables > threshold).mean(axis=(-2, -1)) for threshold in thresholds]
        return np.stack(shares, axis=-1)

    return profile


def bootstrap(
    table: ArrayLike,
    statistic: Statistic,
    *,
    resample_tasks: bool = False,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> list[Interval]:
    """Compute a statistic of a table, with percentile intervals of a stratified bootstrap.

    Args:
        table: shape [runs, tasks].
        statistic: what to compute, such as `interquartile_mean`.
        resample_tasks: resample tasks as well as runs.
        seed: of the resampling.
        samples: number of resamples.
        confidence: nominal coverage, between 0 and 1.

    Returns:
        an interval for each number of the statistic (one for `interquartile_mean`);
        `Interval.n` is the number of runs.

    Raises:
        GroupTooSmall: a single run, and tasks are not resampled.
        InputError: the table has a wrong shape, or holds anything but finite numbers.
    """
    scores = _checked(table, confidence)
    runs = len(scores)
    if runs < 2 and not resample_tasks:
        raise GroupTooSmall(
            "One run does not show the variance between training seeds; give at least two, or "
            "set resample_tasks."
        )
    rng = np.random.default_rng(seed)
    resampled = np.concatenate(
        [
            statistic(_resampled(scores, size, rng, resample_tasks)).reshape(size, -1)
            for size in _chunks(samples, scores.size)
        ]
    )
    return _intervals(statistic(scores), resampled, runs, confidence)


def probability_of_improvement(
    a: ArrayLike,
    b: ArrayLike,
    *,
    seed: int = 0,
    samples: int = 2_000,
    confidence: float = 0.95,
) -> Interval:
    """Return the probability that a run of `a` beats a run of `b`, averaged over tasks.

    It measures how likely an improvement is, not how large; equal scores count half.

    Args:
        a: scores of one method, shape [runs of a, tasks].
        b: scores of the other on the same tasks in the same order, shape [runs of b, tasks].
        seed: of the resampling.
        samples: number of resamples.
        confidence: nominal coverage, between 0 and 1.

    Raises:
        GroupTooSmall: either method has a single run.
        InputError: the tables have different tasks, or hold anything but finite numbers.
    """
    first, second = _checked(a, confidence), _checked(b, confidence)
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"The methods have {first.shape[1]} and {second.shape[1]} tasks; "
            "compare them on the same tasks."
        )
    if min(len(first), len(second)) < 2:
        raise GroupTooSmall(
            "One run does not show the variance between training seeds; give at least two."
        )
    rng = np.random.default_rng(seed)
    pairs = len(first) * len(second) * first.shape[1]
    resampled = [
        _improvement(_resampled(first, size, rng), _resampled(second, size, rng))
        for size in _chunks(samples, pairs)
    ]
    found = _improvement(first, second)
    return _intervals(
        found, np.concatenate(resampled)[:, None], min(len(first), len(second)), confidence
    )[0]


def _improvement(a: Array, b: Array) -> Array:
    """Map tables of shapes [..., runs of a, tasks], [..., runs of b, tasks] to shape [...]."""
    signs = np.sign(a[..., :, None, :] - b[..., None, :, :])
    found: Array = (1 + signs.mean(axis=(-3, -2, -1))) / 2
    return found


def _resampled(
    table: Array, size: int, rng: np.random.Generator, resample_tasks: bool = False
) -> Array:
    """Resample a table `size` times, shape [size, runs, tasks]."""
    runs, tasks = table.shape
    rows = rng.integers(0, runs, size=(size, runs, tasks))
    columns = np.arange(tasks)[None, None, :]
    if resample_tasks:
        columns = rng.integers(0, tasks, size=(size, 1, tasks))
    found: Array = table[rows, columns]
    return found


def _chunks(samples: int, numbers: int) -> Iterator[int]:
    """Yield batch sizes that sum to `samples`, each of at most about CHUNK values."""
    size = max(1, CHUNK // numbers)
    for start in range(0, samples, size):
        yield min(size, samples - start)


def _intervals(found: Array, resampled: Array, n: int, confidence: float) -> list[Interval]:
    tail = (1 - confidence) / 2
    lows, highs = np.quantile(resampled, [tail, 1 - tail], axis=0)
    values = np.atleast_1d(found)
    return [
        Interval(float(value), float(low), float(high), n)
        for value, low, high in zip(values, lows, highs, strict=True)
    ]


def _checked(table: ArrayLike, confidence: float) -> Array:
    scores = np.asarray(table, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise InputError(
            f"The table of scores has the shape {scores.shape}; give one of shape [runs, tasks]."
        )
    if not np.isfinite(scores).all():
        raise InputError("The table of scores has entries that are not finite; see score_table.")
    if not 0 < confidence < 1:
        raise InputError(f"A confidence of {confidence} is invalid; give one between 0 and 1.")
    return scores
