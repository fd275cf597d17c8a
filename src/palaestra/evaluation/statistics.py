"""Scores of policies with intervals: how sure one may be of a rate, and of a difference.

The unit is the task, never the episode: repeats of one task are averaged first,
because they are not independent. Only what the agent did counts: an episode that
the environment or the infrastructure broke is missing, and a task without any
scored episode is left out of every statistic (`Interval.n` says how many remain).
The intervals speak about other tasks of the same kind, not about other training
seeds: one run says nothing about the spread between runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.outcome import Owner

POLICIES = ("base", "imitation", "rl")  # in the order of training
MOST = 2**22  # counts that a bootstrap holds at once
DIFFERENCES = (("rl", "imitation"), ("rl", "base"), ("imitation", "base"))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float
    n: int  # how many tasks (or pairs of tasks) it rests on

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        return self.high < 0


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a success rate, within [0, 1].

    Args:
        successes: how many of the `n` independent trials succeeded.
        n: number of trials.
        confidence: coverage aimed at, between 0 and 1.

    Raises:
        GroupTooSmall: no trial at all.
        InputError: `successes` is not within 0 … n.
    """
    _check_confidence(confidence)
    if n < 1:
        raise GroupTooSmall("A success rate of no trials does not exist; evaluate at least one.")
    if not 0 <= successes <= n:
        raise InputError(f"{successes} successes in {n} trials cannot be; give 0 to {n}.")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    spread = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # The bounds of a rate of 0 or 1 are exact; rounding must not move them.
    low = 0.0 if successes == 0 else max(0.0, centre - spread)
    high = 1.0 if successes == n else min(1.0, centre + spread)
    return Interval(rate, low, high, n)


def mean_interval(
    values: Sequence[float | None],
    *,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile bootstrap of a mean.

    Values that are all equal give an interval without width, as this bootstrap
    knows no value that it has not seen; for rates of single trials use `wilson`.

    Args:
        values: one independent value per task; None where there is no result.
        seed: of the resampling; equal inputs and seeds give equal intervals, and
            the order of the values does not matter.
        samples: number of resamples.
        confidence: coverage aimed at, between 0 and 1.

    Raises:
        GroupTooSmall: fewer than two values are present.
        InputError: a value is not a finite number.
    """
    _check_confidence(confidence)
    present = [float(value) for value in values if value is not None]
    if len(present) < 2:
        raise GroupTooSmall(
            f"A bootstrap of {len(present)} value(s) says nothing; give at least two tasks "
            "with a result."
        )
    if not all(isfinite(value) for value in present):
        raise InputError("A bootstrap needs finite numbers; mark missing results as None.")
    # Resampling n values equals drawing how often each distinct value occurs.
    distinct, counts = np.unique(np.asarray(present, dtype=np.float64), return_counts=True)
    n = len(present)
    mean = float(distinct @ counts / n)
    dice, at_once = np.random.default_rng(seed), max(1, MOST // len(distinct))
    means = [
        dice.multinomial(n, counts / n, size=min(at_once, samples - done)) @ distinct / n
        for done in range(0, samples, at_once)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(mean, min(float(low), mean), max(float(high), mean), n)


def paired_difference(
    a: Sequence[float | None],
    b: Sequence[float | None],
    *,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Mean of `a - b` over tasks, with a paired percentile bootstrap.

    Args:
        a: score of each task under the one policy (mean over repeats); None where
            no episode has a result.
        b: the same tasks in the same order under the other policy.
        seed: of the resampling.
        samples: number of resamples.
        confidence: coverage aimed at, between 0 and 1.

    Returns:
        the interval over the pairs of which both members are present.

    Raises:
        InputError: `a` and `b` differ in length.
        GroupTooSmall: fewer than two complete pairs.
    """
    if len(a) != len(b):
        raise InputError(
            f"A paired difference needs the same tasks on both sides; got {len(a)} and {len(b)}."
        )
    differences: list[float | None] = [
        None if x is None or y is None else x - y for x, y in zip(a, b, strict=True)
    ]
    return mean_interval(differences, seed=seed, samples=samples, confidence=confidence)


def success_interval(scores: Sequence[float | None]) -> Interval | None:
    """The success rate over tasks, or None where no task has a result.

    Wilson's interval where each score is 0 or 1 (one episode per task, as a
    rule); a bootstrap over tasks where repeats gave shares in between.
    """
    present = [score for score in scores if score is not None]
    if not present:
        return None
    if all(score in (0.0, 1.0) for score in present):
        return wilson(round(sum(present)), len(present))
    if len(present) < 2:
        return None
    return mean_interval(present)


def success_of(episode: Episode) -> float:
    return float(episode.outcome.solved)


def task_scores(
    episodes: Sequence[Episode], measure: Callable[[Episode], float] = success_of
) -> dict[int, float]:
    """`measure` of each task by its number (`key.group`), averaged over scored repeats.

    A task of which no episode is scored does not appear.
    """
    values: dict[int, list[float]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            values.setdefault(episode.key.group, []).append(measure(episode))
    return {group: sum(of) / len(of) for group, of in sorted(values.items())}


def paired_scores(
    a: Mapping[int, float], b: Mapping[int, float]
) -> tuple[list[float | None], list[float | None]]:
    """Two sets of task scores, aligned by task number; None where one has no result."""
    groups = sorted(a.keys() | b.keys())
    return [a.get(group) for group in groups], [b.get(group) for group in groups]


@dataclass(frozen=True, slots=True)
class Score:
    """How one policy did on one list of tasks."""

    success: Interval | None  # None where no task has a result
    episodes: int  # all of them
    faults: int  # of these, not scored: the environment or the infrastructure broke
    tasks: int  # with or without a result
    missing: dict[str, int]  # of these, the ones without a result, by whose fault
    turns: float  # mean of the scored episodes
    invalid_rate: float  # share of their actions that the environment did not understand
    reward: float  # mean of the scored episodes
    outcomes: dict[str, int]  # how the episodes ended


@dataclass(frozen=True, slots=True)
class Comparison:
    """The policies of a run on the same tasks of one environment."""

    environment: str
    scores: dict[str, Score]  # by policy, in the order of training
    paired: dict[str, Interval]  # by name, e.g. "rl_minus_base"

    @property
    def success(self) -> dict[str, Interval]:
        """The success rates that exist, by policy."""
        return {name: s.success for name, s in self.scores.items() if s.success is not None}

    @property
    def counted(self) -> tuple[int, int]:
        """How many tasks a success rate rests on: the fewest and the most."""
        counts = [rate.n for rate in self.success.values()] or [0]
        return min(counts), max(counts)


def compare(episodes: Mapping[str, Sequence[Episode]]) -> Comparison:
    """Score policies on the same tasks; a policy without episodes is left out."""
    present = {policy: list(of) for policy, of in episodes.items() if of}
    scores = {policy: score(of) for policy, of in present.items()}
    by_task = {policy: task_scores(of) for policy, of in present.items()}
    paired: dict[str, Interval] = {}
    for a, b in DIFFERENCES:
        if a in present and b in present:
            with suppress(GroupTooSmall):  # one pair or none: there is no interval to report
                paired[f"{a}_minus_{b}"] = paired_difference(*paired_scores(by_task[a], by_task[b]))
    worlds = {episode.task.environment for of in present.values() for episode in of}
    return Comparison(", ".join(sorted(worlds)), scores, paired)


def score(episodes: Sequence[Episode]) -> Score:
    """Success, turns and validity of one policy; only scored episodes count."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    taken = sum(len(episode.steps) for episode in scored)
    count = max(1, len(scored))
    return Score(
        success=success_interval(list(task_scores(scored).values())),
        episodes=len(episodes),
        faults=len(episodes) - len(scored),
        tasks=len({episode.key.group for episode in episodes}),
        missing=_missing(episodes),
        turns=taken / count,
        invalid_rate=sum(episode.invalid_turns for episode in scored) / max(1, taken),
        reward=sum(episode.reward for episode in scored) / count,
        outcomes=dict(Counter(str(episode.outcome) for episode in episodes).most_common()),
    )


def _missing(episodes: Sequence[Episode]) -> dict[str, int]:
    """How many tasks have no result, by whose fault; what infrastructure broke can be mended."""
    owners: dict[int, set[Owner | None]] = {}
    for episode in episodes:
        owners.setdefault(episode.key.group, set()).add(
            None if episode.outcome.scored else episode.outcome.owner
        )
    broken = [of for of in owners.values() if None not in of]
    mendable = sum(Owner.INFRASTRUCTURE in of for of in broken)
    found = {Owner.ENVIRONMENT: len(broken) - mendable, Owner.INFRASTRUCTURE: mendable}
    return {str(owner): count for owner, count in found.items() if count}


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"A confidence of {confidence} cannot be; give one between 0 and 1.")
