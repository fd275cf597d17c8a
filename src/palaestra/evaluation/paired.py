"""Two runs on the same tasks: is one better, how sure is that, and which tasks changed.

Tasks differ far more in how hard they are than two policies differ in skill; comparing task
by task takes that spread out. All that is random here is the task: repeats of one task
belong together and are never counted as independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics import Interval

Array = NDArray[np.float64]
Task = TypeVar("Task", int, str)

EXACT = 200_000  # sums that are enumerated before chance decides
CHUNK = 4_000_000  # numbers held in memory at once while tasks are drawn anew


@dataclass(frozen=True, slots=True)
class Flips(Generic[Task]):
    """Tasks by what became of their score from one run to another."""

    gained: tuple[Task, ...]  # the second run scores higher
    lost: tuple[Task, ...]  # the first run scores higher
    same: tuple[Task, ...]

    @property
    def n(self) -> int:
        return len(self.gained) + len(self.lost) + len(self.same)


def flips(a: Mapping[Task, float], b: Mapping[Task, float]) -> Flips[Task]:
    """Which tasks flipped between run `a` and run `b`; tasks that only one has are left out."""
    common = sorted(a.keys() & b.keys())
    return Flips(
        gained=tuple(task for task in common if b[task] > a[task]),
        lost=tuple(task for task in common if b[task] < a[task]),
        same=tuple(task for task in common if b[task] == a[task]),
    )


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p-value of McNemar's test for single trials that succeed or fail.

    Under the hypothesis that neither run is better, a task that only one of them solved is
    as likely to be the one's as the other's; tasks that both or neither solved say nothing.

    Args:
        gained: tasks that only the second run solved.
        lost: tasks that only the first run solved.

    Raises:
        InputError: a negative count.
    """
    if gained < 0 or lost < 0:
        raise InputError(f"{gained} gained and {lost} lost tasks cannot be; count from 0.")
    if gained == lost:
        return 1.0
    return float(min(1.0, 2 * binomial(gained + lost)[: min(gained, lost) + 1].sum()))


def permutation_test(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, samples: int = 100_000
) -> float:
    """The two-sided p-value of the mean difference when each pair may be swapped.

    It needs no assumption about the scores, and is exact wherever the possible sums can be
    enumerated: always for up to 17 tasks that differ, and for many more where scores are few
    (single trials: then it is McNemar's test). Else swaps are drawn by chance.

    Args:
        a: score of each task under the one policy (mean over repeats).
        b: the same tasks in the same order under the other policy.
        seed: of the swaps, where they are drawn.
        samples: how many are drawn.

    Raises:
        InputError: `a` and `b` differ in length, or hold anything but finite numbers.
        GroupTooSmall: no task.
    """
    differences = _differences(a, b)
    # Differences that ought to be equal (0.3 - 0.2, 0.2 - 0.1) may not be, by rounding.
    sizes, counts = np.unique(np.round(np.abs(differences), 9), return_counts=True)
    sizes, counts = sizes[sizes > 0], counts[sizes > 0]
    if not len(sizes):
        return 1.0
    reached = abs(float(differences.sum())) * (1 - 1e-9) - 1e-9
    if np.prod(counts + 1.0) <= EXACT:
        sums, chances = np.zeros(1), np.ones(1)
        for size, count in zip(sizes, counts, strict=True):
            step = size * np.arange(-count, count + 1, 2)
            sums = np.add.outer(sums, step).ravel()
            chances = np.multiply.outer(chances, binomial(int(count))).ravel()
        return float(min(1.0, chances[np.abs(sums) >= reached].sum()))
    rng = np.random.default_rng(seed)
    extreme = 0
    for batch in _batches(samples, len(sizes)):
        tosses = rng.binomial(counts, 0.5, size=(batch, len(sizes)))
        extreme += int((np.abs((2 * tosses - counts) @ sizes) >= reached).sum())
    return (extreme + 1) / (samples + 1)  # what was observed is one of them


def binomial(trials: int, chance: float = 0.5) -> Array:
    """The chance of each number of successes in so many trials, shape [trials + 1]."""
    if chance in (0.0, 1.0):
        certain: Array = np.eye(trials + 1)[round(trials * chance)]
        return certain
    ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])  # of factorials
    successes = np.arange(trials + 1)
    odds = successes * np.log(chance) + (trials - successes) * np.log1p(-chance)
    chances: Array = np.exp(ways[-1] - ways - ways[::-1] + odds)
    return chances


def clustered_mean(
    values: Sequence[Sequence[float]],
    *,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """The mean over all values, with a bootstrap that draws whole tasks.

    Unlike the mean of task means (`statistics.mean_interval`), each value counts the same:
    for rates per turn, say, where a long episode has more turns than a short one.

    Args:
        values: the values of each task, one list per task; empty lists are left out.
        seed: of the resampling.
        samples: number of resamples.
        confidence: coverage aimed at, between 0 and 1.

    Returns:
        the interval; `Interval.n` is the number of tasks.

    Raises:
        GroupTooSmall: fewer than two tasks have a value.
        InputError: a value is not a finite number.
    """
    tasks = _totals([task for task in values if len(task)])
    drawn = _ratio(_drawn(tasks, seed, samples))
    return _interval(_ratio(tasks.sum(axis=0)), drawn, tasks, confidence)


def _totals(values: Sequence[Sequence[float]]) -> Array:
    """The sum and the number of the values of each task, shape [tasks, 2]."""
    if len(values) < 2:
        raise GroupTooSmall(
            f"A bootstrap of {len(values)} task(s) says nothing; give at least two tasks "
            "with a result."
        )
    found = np.array([(sum(of), len(of)) for of in values], dtype=np.float64)
    if not np.isfinite(found).all():
        raise InputError("A bootstrap needs finite numbers; leave missing results out.")
    return found


def _ratio(totals: Array) -> Array:
    """Means from sums and numbers, shape [..., 2] to [...]."""
    means: Array = totals[..., 0] / totals[..., 1]
    return means


def _drawn(tasks: Array, seed: int, samples: int) -> Array:
    """Column totals of as many tasks drawn anew; shape [tasks, columns] to [samples, columns]."""
    # Drawing n tasks equals drawing how often each distinct kind of task occurs.
    kinds, counts = np.unique(tasks, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    shares = counts / len(tasks)
    drawn = [
        rng.multinomial(len(tasks), shares, size=batch) @ kinds
        for batch in _batches(samples, len(kinds))
    ]
    return np.concatenate(drawn)


def _batches(samples: int, numbers: int) -> list[int]:
    """Sizes of batches that sum to `samples`, with at most about CHUNK numbers in memory."""
    size = max(1, CHUNK // numbers)
    return [min(size, samples - start) for start in range(0, samples, size)]


def _interval(found: Array, drawn: Array, tasks: Array, confidence: float) -> Interval:
    if not 0 < confidence < 1:
        raise InputError(f"A confidence of {confidence} cannot be; give one between 0 and 1.")
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    mean = float(found)
    return Interval(mean, min(float(low), mean), max(float(high), mean), len(tasks))


def _differences(a: Sequence[float], b: Sequence[float]) -> Array:
    if len(a) != len(b):
        raise InputError(f"A paired test needs the same tasks; got {len(a)} and {len(b)}.")
    if not len(a):
        raise GroupTooSmall("A paired test of no task does not exist; evaluate at least one.")
    differences = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise InputError("A paired test needs finite numbers; leave missing results out.")
    return differences
