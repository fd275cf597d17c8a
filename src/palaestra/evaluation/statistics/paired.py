"""Paired tests of two runs on the same tasks: which run is better, and which tasks changed.

Tasks differ far more in difficulty than two policies differ in skill; a comparison task by task
removes that variance. Only the task is random here: repeats of one task are never counted as
independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import Interval

Array = NDArray[np.float64]
Task = TypeVar("Task", int, str)

EXACT = 200_000  # sums that are enumerated; beyond, swaps are sampled
CHUNK = 4_000_000  # values held in memory at once while tasks are resampled


@dataclass(frozen=True, slots=True)
class Flips(Generic[Task]):
    """Tasks by the change of their score from the first run to the second."""

    gained: tuple[Task, ...]  # the second run scores higher
    lost: tuple[Task, ...]  # the first run scores higher
    same: tuple[Task, ...]

    @property
    def n(self) -> int:
        return len(self.gained) + len(self.lost) + len(self.same)


def flips(a: Mapping[Task, float], b: Mapping[Task, float]) -> Flips[Task]:
    """Return the tasks that flipped from run `a` to run `b`; tasks of only one are left out."""
    common = sorted(a.keys() & b.keys())
    return Flips(
        gained=tuple(task for task in common if b[task] > a[task]),
        lost=tuple(task for task in common if b[task] < a[task]),
        same=tuple(task for task in common if b[task] == a[task]),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test for single trials.

    Under the null hypothesis that neither run is better, a task that only one run solved is
    equally likely to be either run's; tasks that both or neither solved carry no information.

    Args:
        gained: tasks that only the second run solved.
        lost: tasks that only the first run solved.

    Raises:
        InputError: a negative count.
    """
    if gained < 0 or lost < 0:
        raise InputError(f"{gained} gained and {lost} lost tasks are invalid; give 0 or more.")
    if gained == lost:
        return 1.0
    return float(min(1.0, 2 * binomial(gained + lost)[: min(gained, lost) + 1].sum()))


def permutation_test(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, samples: int = 100_000
) -> float:
    """Return the two-sided p-value of the mean difference under random swaps of the pairs.

    It makes no assumption about the scores, and is exact if the possible sums can be enumerated:
    always for up to 17 tasks that differ, and for many more if there are few distinct scores
    (for single trials it is McNemar's test). Otherwise swaps are sampled.

    Args:
        a: score of each task under one policy (mean over repeats).
        b: the same tasks in the same order under the other policy.
        seed: of sampled swaps.
        samples: number of sampled swaps.

    Raises:
        InputError: `a` and `b` differ in length, or hold anything but finite numbers.
        GroupTooSmall: no task.
    """
    differences = _differences(a, b)
    # Differences that should be equal (0.3 - 0.2, 0.2 - 0.1) may differ by rounding.
    sizes, counts = np.unique(np.round(np.abs(differences), 9), return_counts=True)
    sizes, counts = sizes[sizes > 0], counts[sizes > 0]
    if not len(sizes):
        return 1.0
    reached = abs(float(differences.sum())) * (1 - 1e-9) - 1e-9
    if np.prod(counts + 1.0) <= EXACT:
        sums, probabilities = np.zeros(1), np.ones(1)
        for size, count in zip(sizes, counts, strict=True):
            step = size * np.arange(-count, count + 1, 2)
            sums = np.add.outer(sums, step).ravel()
            probabilities = np.multiply.outer(probabilities, binomial(int(count))).ravel()
        return float(min(1.0, probabilities[np.abs(sums) >= reached].sum()))
    rng = np.random.default_rng(seed)
    extreme = 0
    for batch in _batches(samples, len(sizes)):
        tosses = rng.binomial(counts, 0.5, size=(batch, len(sizes)))
        extreme += int((np.abs((2 * tosses - counts) @ sizes) >= reached).sum())
    return (extreme + 1) / (samples + 1)  # the observed assignment counts as a sample


def binomial(trials: int, probability: float = 0.5) -> Array:
    """Return the probability of each number of successes in `trials`, shape [trials + 1]."""
    if probability in (0.0, 1.0):
        certain: Array = np.eye(trials + 1)[round(trials * probability)]
        return certain
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    successes = np.arange(trials + 1)
    log_powers = successes * np.log(probability) + (trials - successes) * np.log1p(-probability)
    log_counts = log_factorials[-1] - log_factorials - log_factorials[::-1]
    found: Array = np.exp(log_counts + log_powers)
    return found


def clustered_mean(
    values: Sequence[Sequence[float]],
    *,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean over all values, with a bootstrap that resamples whole tasks.

    Unlike in the mean of task means (`mean_interval`), each value has the same weight: for rates
    per turn, say, to which a long episode contributes more turns than a short one.

    Args:
        values: the values of each task, one list per task; empty lists are skipped.
        seed: of the resampling.
        samples: number of resamples.
        confidence: nominal coverage, between 0 and 1.

    Returns:
        the interval; `Interval.n` is the number of tasks.

    Raises:
        GroupTooSmall: fewer than two tasks have a value.
        InputError: a value is not a finite number.
    """
    tasks = _totals([task for task in values if len(task)])
    resampled = _ratio(_resampled(tasks, seed, samples))
    return _interval(_ratio(tasks.sum(axis=0)), resampled, tasks, confidence)


def _totals(values: Sequence[Sequence[float]]) -> Array:
    """Return the sum and the number of the values of each task, shape [tasks, 2]."""
    if len(values) < 2:
        raise GroupTooSmall(
            f"A bootstrap needs at least two tasks, and there are {len(values)}; give at least "
            "two tasks with a result."
        )
    found = np.array([(sum(of), len(of)) for of in values], dtype=np.float64)
    if not np.isfinite(found).all():
        raise InputError("A value is not finite; leave missing results out.")
    return found


def _ratio(totals: Array) -> Array:
    """Divide sums by counts, shape [..., 2] to [...]."""
    means: Array = totals[..., 0] / totals[..., 1]
    return means


def _resampled(tasks: Array, seed: int, samples: int) -> Array:
    """Return column totals of resampled tasks; shape [tasks, columns] to [samples, columns]."""
    # Resampling n tasks equals sampling how often each distinct kind of task occurs.
    kinds, counts = np.unique(tasks, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    shares = counts / len(tasks)
    totals = [
        rng.multinomial(len(tasks), shares, size=batch) @ kinds
        for batch in _batches(samples, len(kinds))
    ]
    return np.concatenate(totals)


def _batches(samples: int, numbers: int) -> list[int]:
    """Return batch sizes that sum to `samples`, with at most about CHUNK values in memory."""
    size = max(1, CHUNK // numbers)
    return [min(size, samples - start) for start in range(0, samples, size)]


def _interval(found: Array, resampled: Array, tasks: Array, confidence: float) -> Interval:
    if not 0 < confidence < 1:
        raise InputError(f"A confidence of {confidence} is invalid; give one between 0 and 1.")
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    mean = float(found)
    return Interval(mean, min(float(low), mean), max(float(high), mean), len(tasks))


def _differences(a: Sequence[float], b: Sequence[float]) -> Array:
    if len(a) != len(b):
        raise InputError(
            f"`a` and `b` have {len(a)} and {len(b)} tasks; pass the same tasks in both."
        )
    if not len(a):
        raise GroupTooSmall("There is no task to compare; evaluate at least one.")
    differences = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise InputError("A score is not finite; leave missing results out.")
    return differences
