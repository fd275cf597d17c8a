"""Scores of policies with confidence intervals of rates and of differences.

The unit is the task, never the episode: repeats of one task are averaged first,
because they are not independent. An episode that the environment or the infrastructure
broke counts as missing, and a task without any scored episode is left out of every
statistic (`Interval.n` is the number of remaining tasks). The intervals cover other
tasks of the same kind, not other training seeds: one run does not show the variance
between runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.outcome import Outcome, Owner, Status

if TYPE_CHECKING:
    from palaestra.evaluation.statistics.player_results import PlayerScore

POLICIES = ("base", "imitation", "rl")  # in the order of training, in a run without stages
MOST = 2**22  # counts that a bootstrap holds in memory at once
DIFFERENCES = (("rl", "imitation"), ("rl", "base"), ("imitation", "base"))


def policies_of(phases: Sequence[str], *, staged: bool = False) -> tuple[str, ...]:
    """Return the versions of the policy that a run tests, in the order of training.

    Args:
        phases: of the run, in the order of their first episodes.
        staged: whether its recipe has stages; without them, the three usual ones are tested.
    """
    tested = tuple(p.removeprefix("test/") for p in phases if p.startswith("test/"))
    return tested if staged or not set(tested) <= set(POLICIES) else POLICIES


def compared_policies(policies: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs (after, before) of versions whose difference matters, the main one first."""
    if set(policies) <= set(POLICIES):
        return DIFFERENCES
    *earlier, last = policies
    return tuple((last, one) for one in reversed(earlier))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float
    n: int  # the number of tasks (or pairs of tasks)

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        return self.high < 0


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a success rate, within [0, 1].

    Args:
        successes: how many of the `n` independent trials succeeded.
        n: number of trials.
        confidence: nominal coverage, between 0 and 1.

    Raises:
        GroupTooSmall: there is no trial.
        InputError: `successes` is not within 0 … n.
    """
    _check_confidence(confidence)
    if n < 1:
        raise GroupTooSmall("There are no trials to compute a rate from; evaluate at least one.")
    if not 0 <= successes <= n:
        raise InputError(f"{successes} successes in {n} trials are impossible; give 0 to {n}.")
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
    """Return a mean with its percentile-bootstrap interval.

    Values that are all equal give an interval of width 0, as the bootstrap only
    resamples observed values; for rates of single trials use `wilson`.

    Args:
        values: one independent value per task; None without a result.
        seed: of the resampling; equal inputs and seeds give equal intervals, and
            the order of the values does not matter.
        samples: number of resamples.
        confidence: nominal coverage, between 0 and 1.

    Raises:
        GroupTooSmall: fewer than two values are present.
        InputError: a value is not a finite number.
    """
    _check_confidence(confidence)
    present = [float(value) for value in values if value is not None]
    if len(present) < 2:
        raise GroupTooSmall(
            f"A bootstrap needs at least two values, and there are {len(present)}; give at least "
            "two tasks with a result."
        )
    if not all(isfinite(value) for value in present):
        raise InputError("A value is not finite; mark missing results as None.")
    # Resampling n values equals sampling how often each distinct value occurs.
    distinct, counts = np.unique(np.asarray(present, dtype=np.float64), return_counts=True)
    n = len(present)
    mean = float(distinct @ counts / n)
    rng, batch = np.random.default_rng(seed), max(1, MOST // len(distinct))
    means = [
        rng.multinomial(n, counts / n, size=min(batch, samples - done)) @ distinct / n
        for done in range(0, samples, batch)
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
    """Return the mean of `a - b` over tasks, with a paired percentile bootstrap.

    Args:
        a: score of each task under one policy (mean over repeats); None if no
            episode has a result.
        b: the same tasks in the same order under the other policy.
        seed: of the resampling.
        samples: number of resamples.
        confidence: nominal coverage, between 0 and 1.

    Returns:
        the interval over the complete pairs.

    Raises:
        InputError: `a` and `b` differ in length.
        GroupTooSmall: fewer than two complete pairs.
    """
    if len(a) != len(b):
        raise InputError(
            f"`a` and `b` have {len(a)} and {len(b)} tasks; pass the same tasks in both."
        )
    differences: list[float | None] = [
        None if x is None or y is None else x - y for x, y in zip(a, b, strict=True)
    ]
    return mean_interval(differences, seed=seed, samples=samples, confidence=confidence)


def success_interval(scores: Sequence[float | None]) -> Interval | None:
    """Return the success rate over tasks; None if no task has a result.

    The interval is Wilson's if each score is 0 or 1 (usually one episode per task),
    else a bootstrap over tasks.
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
    """Return 1 if the episode's task is solved, else 0."""
    return float(episode.outcome.solved)


def task_scores(
    episodes: Sequence[Episode], measure: Callable[[Episode], float] = success_of
) -> dict[int, float]:
    """Return `measure` by task number (`key.group`), averaged over scored repeats.

    A task without a scored episode does not appear.
    """
    values: dict[int, list[float]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            values.setdefault(episode.key.group, []).append(measure(episode))
    return {group: sum(of) / len(of) for group, of in sorted(values.items())}


def paired_scores(
    a: Mapping[int, float], b: Mapping[int, float]
) -> tuple[list[float | None], list[float | None]]:
    """Align two sets of task scores by task number; None for a missing result."""
    groups = sorted(a.keys() | b.keys())
    return [a.get(group) for group in groups], [b.get(group) for group in groups]


@dataclass(frozen=True, slots=True)
class Score:
    """One policy's results on one list of tasks."""

    success: Interval | None  # None if no task has a result, or each player has its own
    episodes: int  # all of them
    faults: int  # unscored episodes: the environment or the infrastructure broke
    tasks: int  # with or without a result
    missing: dict[str, int]  # tasks without a result, by the owner of the fault
    turns: float  # mean of the scored episodes
    invalid_rate: float  # share of invalid actions
    reward: float  # mean of the scored episodes
    outcomes: dict[str, int]  # how the episodes ended
    players: dict[str, PlayerScore] = field(default_factory=dict)  # empty for a single player


@dataclass(frozen=True, slots=True)
class Comparison:
    """The policies of a run on the same tasks of one environment."""

    environment: str
    scores: dict[str, Score]  # by policy, in the order of training
    paired: dict[str, Interval]  # by name, e.g. "rl_minus_base"

    @property
    def success(self) -> dict[str, Interval]:
        """The available success rates, by policy."""
        return {name: s.success for name, s in self.scores.items() if s.success is not None}

    @property
    def counted(self) -> tuple[int, int]:
        """The smallest and the largest number of tasks with a result, of policies with any."""
        counts = [score.tasks - sum(score.missing.values()) for score in self.scores.values()]
        known = [count for count in counts if count] or [0]
        return min(known), max(known)


def compare(episodes: Mapping[str, Sequence[Episode]]) -> Comparison:
    """Score policies on the same tasks; a policy without episodes is left out.

    Policies that play games have no success to compare, unless all players share it.
    """
    present = {policy: list(of) for policy, of in episodes.items() if of}
    scores = {policy: score(of) for policy, of in present.items()}
    by_task = {policy: task_scores(of) for policy, of in present.items()}
    paired: dict[str, Interval] = {}
    for a, b in compared_policies(list(episodes)):
        if a in present and b in present and scores[a].success and scores[b].success:
            with suppress(GroupTooSmall):  # fewer than two pairs give no interval
                paired[f"{a}_minus_{b}"] = paired_difference(*paired_scores(by_task[a], by_task[b]))
    environments = {episode.task.environment for of in present.values() for episode in of}
    return Comparison(", ".join(sorted(environments)), scores, paired)


def score(episodes: Sequence[Episode]) -> Score:
    """Score one policy: success, turns and validity; only scored episodes count."""
    from palaestra.evaluation.statistics.player_results import has_success, scores_of

    scored = [episode for episode in episodes if episode.outcome.scored]
    taken = sum(len(episode.steps) for episode in scored)
    count = max(1, len(scored))
    players = scores_of(scored)
    one = all(has_success(id, players) for id in {e.task.environment for e in episodes})
    return Score(
        success=success_interval(list(task_scores(scored).values())) if one else None,
        episodes=len(episodes),
        faults=len(episodes) - len(scored),
        tasks=len({episode.key.group for episode in episodes}),
        missing=_missing(episodes),
        turns=taken / count,
        invalid_rate=sum(episode.invalid_turns for episode in scored) / max(1, taken),
        reward=sum(episode.reward for episode in scored) / count,
        outcomes=dict(Counter(_ending(e.outcome, one) for e in episodes).most_common()),
        players=players,
    )


def _ending(outcome: Outcome, one: bool) -> str:
    """Return an outcome as text; `one`: the episode has one success, not one per player."""
    decided = outcome.status in (Status.SUCCESS, Status.FAILURE)
    return "ended" if decided and not one else str(outcome)


def _missing(episodes: Sequence[Episode]) -> dict[str, int]:
    """Count the tasks without a result by owner of the fault; infrastructure's can be rerun."""
    owners: dict[int, set[Owner | None]] = {}
    for episode in episodes:
        owners.setdefault(episode.key.group, set()).add(
            None if episode.outcome.scored else episode.outcome.owner
        )
    broken = [of for of in owners.values() if None not in of]
    rerunnable = sum(Owner.INFRASTRUCTURE in of for of in broken)
    found = {Owner.ENVIRONMENT: len(broken) - rerunnable, Owner.INFRASTRUCTURE: rerunnable}
    return {str(owner): count for owner, count in found.items() if count}


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"A confidence of {confidence} is invalid; give one between 0 and 1.")
