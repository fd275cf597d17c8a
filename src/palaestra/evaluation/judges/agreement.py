"""A judge's agreement with the truth: accuracy, kappa, precision and recall, with intervals.

The unit is the task, as in `statistics`: repeats of one task are averaged first. Cases without a
verdict are counted separately and enter none of these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.statistics.intervals import Interval, success_interval

ENOUGH = 30  # cases of each kind; below it, an agreement is too uncertain to use


@dataclass(frozen=True, slots=True)
class Judged:
    """A judge's verdict on one episode, and the truth."""

    task: int  # its number; repeats of a task share it
    judged: bool | None  # solved; None: no verdict
    true: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against the truth."""

    cases: int
    silent: int  # cases without a verdict
    solved: int  # cases with a verdict that are truly solved
    accuracy: Interval | None  # None if nothing was judged
    kappa: Interval | None  # agreement beyond chance; None if judge and truth never vary
    precision: Interval | None  # share of truly solved cases among those judged as solved
    recall: Interval | None  # share of cases judged as solved among the truly solved
    specificity: Interval | None  # share of cases judged as unsolved among the truly unsolved

    @property
    def few(self) -> bool:
        """Whether there are too few solved or unsolved cases for a useful estimate."""
        return min(self.solved, self.cases - self.silent - self.solved) < ENOUGH


def agreement(judged: Sequence[Judged], *, seed: int = 0) -> Agreement:
    """Return all agreement measures of a list of judged cases.

    Args:
        judged: the cases.
        seed: of the resampling of tasks behind kappa's interval.
    """
    decided = [case for case in judged if case.judged is not None]
    correct = [(case.task, case.judged == case.true) for case in decided]
    return Agreement(
        cases=len(judged),
        silent=len(judged) - len(decided),
        solved=sum(case.true for case in decided),
        accuracy=_share(correct),
        kappa=kappa(decided, seed=seed),
        precision=_share([(c.task, c.true) for c in decided if c.judged]),
        recall=_share([(c.task, bool(c.judged)) for c in decided if c.true]),
        specificity=_share([(c.task, not c.judged) for c in decided if not c.true]),
    )


def kappa(judged: Sequence[Judged], *, seed: int = 0, samples: int = 2_000) -> Interval | None:
    """Return Cohen's kappa of judge and truth, with a bootstrap over tasks.

    Source: Cohen 1960. 1 is full agreement, 0 is chance agreement with the same shares.

    Args:
        judged: cases with a verdict.
        seed: of the resampling.
        samples: resamples; those in which neither judge nor truth varies are dropped.

    Returns:
        None if kappa does not exist: one of the two answers was neither given nor true.
    """
    tables: dict[int, list[int]] = {}  # task to its cases: yes-yes, yes-no, no-yes, no-no
    for case in judged:
        table = tables.setdefault(case.task, [0, 0, 0, 0])
        table[2 * (not case.judged) + (not case.true)] += 1
    if not tables:
        return None
    counts = np.asarray(list(tables.values()), dtype=np.float64)
    middle = _kappa(counts.sum(axis=0, keepdims=True))[0]
    if np.isnan(middle):
        return None
    n = len(counts)
    resampled = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=samples) @ counts
    found = _kappa(resampled)
    found = found[~np.isnan(found)]
    low, high = np.quantile(found, [0.025, 0.975]) if len(found) else (middle, middle)
    return Interval(float(middle), min(float(low), middle), max(float(high), middle), n)


def _kappa(tables: np.ndarray) -> np.ndarray:
    """Return kappa of each row of yes-yes, yes-no, no-yes, no-no counts; NaN if undefined."""
    total = tables.sum(axis=1)
    observed = (tables[:, 0] + tables[:, 3]) / total
    yes, true = tables[:, 0] + tables[:, 1], tables[:, 0] + tables[:, 2]
    chance = (yes * true + (total - yes) * (total - true)) / total**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance < 1, (observed - chance) / (1 - chance), np.nan)


def _share(cases: Sequence[tuple[int, bool]]) -> Interval | None:
    """Return the share of true values, over tasks."""
    by_task: dict[int, list[bool]] = {}
    for task, holds in cases:
        by_task.setdefault(task, []).append(holds)
    try:
        return success_interval([sum(of) / len(of) for of in by_task.values()])
    except GroupTooSmall:
        return None
