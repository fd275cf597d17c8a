"""How far a judge agrees with the truth: accuracy, kappa, precision and recall, with intervals.

The unit is the task, as in `statistics`: repeats of one task are averaged first. Cases without a
verdict are counted beside, and in none of these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.statistics import Interval, success_interval

ENOUGH = 30  # cases of each kind below which an agreement says little


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge said of one episode, and what was true."""

    task: int  # its number; repeats of a task share it
    said: bool | None  # solved, or no verdict
    true: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against the truth."""

    cases: int
    silent: int  # of them, without a verdict
    solved: int  # of those with a verdict, truly solved
    accuracy: Interval | None  # None where nothing was judged
    kappa: Interval | None  # agreement beyond chance; None where the judge and truth never vary
    precision: Interval | None  # of those it takes as solved, the share that is
    recall: Interval | None  # of those that are solved, the share it takes as such
    specificity: Interval | None  # of those that are not, the share it takes as not

    @property
    def few(self) -> bool:
        """Whether there are too few solved or unsolved cases to say much."""
        return min(self.solved, self.cases - self.silent - self.solved) < ENOUGH


def agreement(judged: Sequence[Judged], *, seed: int = 0) -> Agreement:
    """All numbers of one list of judged cases.

    Args:
        judged: the cases.
        seed: of the resampling of tasks behind kappa's interval.
    """
    spoken = [case for case in judged if case.said is not None]
    right = [(case.task, case.said == case.true) for case in spoken]
    return Agreement(
        cases=len(judged),
        silent=len(judged) - len(spoken),
        solved=sum(case.true for case in spoken),
        accuracy=_share(right),
        kappa=kappa(spoken, seed=seed),
        precision=_share([(c.task, c.true) for c in spoken if c.said]),
        recall=_share([(c.task, bool(c.said)) for c in spoken if c.true]),
        specificity=_share([(c.task, not c.said) for c in spoken if not c.true]),
    )


def kappa(judged: Sequence[Judged], *, seed: int = 0, samples: int = 2_000) -> Interval | None:
    """Cohen's kappa of judge and truth, with a bootstrap over tasks.

    Source: Cohen 1960. 1 is full agreement, 0 what chance would reach with the same shares.

    Args:
        judged: cases with a verdict.
        seed: of the resampling.
        samples: resamples; those in which neither judge nor truth varies are left out.

    Returns:
        None where kappa does not exist: one of the two answers was neither given nor true.
    """
    tables: dict[int, list[int]] = {}  # task to its cases: yes-yes, yes-no, no-yes, no-no
    for case in judged:
        table = tables.setdefault(case.task, [0, 0, 0, 0])
        table[2 * (not case.said) + (not case.true)] += 1
    if not tables:
        return None
    counts = np.asarray(list(tables.values()), dtype=np.float64)
    middle = _kappa(counts.sum(axis=0, keepdims=True))[0]
    if np.isnan(middle):
        return None
    n = len(counts)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=samples) @ counts
    found = _kappa(drawn)
    found = found[~np.isnan(found)]
    low, high = np.quantile(found, [0.025, 0.975]) if len(found) else (middle, middle)
    return Interval(float(middle), min(float(low), middle), max(float(high), middle), n)


def _kappa(tables: np.ndarray) -> np.ndarray:
    """Kappa of each row of yes-yes, yes-no, no-yes, no-no counts; NaN where it does not exist."""
    total = tables.sum(axis=1)
    observed = (tables[:, 0] + tables[:, 3]) / total
    said, true = tables[:, 0] + tables[:, 1], tables[:, 0] + tables[:, 2]
    chance = (said * true + (total - said) * (total - true)) / total**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance < 1, (observed - chance) / (1 - chance), np.nan)


def _share(cases: Sequence[tuple[int, bool]]) -> Interval | None:
    """The share of true ones, over tasks."""
    by_task: dict[int, list[bool]] = {}
    for task, holds in cases:
        by_task.setdefault(task, []).append(holds)
    try:
        return success_interval([sum(of) / len(of) for of in by_task.values()])
    except GroupTooSmall:
        return None
