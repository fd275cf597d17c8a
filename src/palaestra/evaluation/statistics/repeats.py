"""Repeated trials of one task: pass@k and pass^k.

`pass@k` is the probability that at least one of k trials succeeds (Chen et al. 2021): what search
with a verifier could reach. `pass^k` is the probability that all k do (Yao et al. 2024,
tau-bench): what a user who comes back k times relies on. Both are estimated without bias
from n >= k trials of a task, by counting its subsets of k, and then averaged over tasks;
inserting the mean success rate into `1 - (1 - p)^k` or `p^k` would be biased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Trials:
    """The scored trials of one task."""

    n: int
    successes: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.n:
            raise InputError(
                f"{self.successes} successes in {self.n} trials are impossible; give 0 to {self.n}."
            )


Estimator = Callable[[Trials, int], float]


def pass_at_k(trials: Trials, k: int) -> float:
    """Return the share of the subsets of `k` trials with at least one success: pass@k.

    Raises:
        GroupTooSmall: fewer than `k` trials.
        InputError: `k` is less than 1.
    """
    _check(trials, k)
    return 1 - comb(trials.n - trials.successes, k) / comb(trials.n, k)


def pass_hat_k(trials: Trials, k: int) -> float:
    """Return the share of the subsets of `k` trials in which all succeed: pass^k.

    Raises:
        GroupTooSmall: fewer than `k` trials.
        InputError: `k` is less than 1.
    """
    _check(trials, k)
    return comb(trials.successes, k) / comb(trials.n, k)


def trials_of(episodes: Sequence[Episode]) -> dict[int, Trials]:
    """Return the scored trials of each task, by its number (`key.group`)."""
    solved: dict[int, list[bool]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            solved.setdefault(episode.key.group, []).append(episode.outcome.solved)
    return {group: Trials(len(of), sum(of)) for group, of in sorted(solved.items())}


def over_tasks(
    trials: Mapping[int, Trials] | Sequence[Trials],
    k: int,
    estimator: Estimator,
    *,
    seed: int = 0,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Average `estimator` over tasks, with a bootstrap over tasks.

    Tasks with fewer than `k` trials (because of a fault, say) are left out; `Interval.n` is the
    number of remaining tasks.

    Raises:
        GroupTooSmall: fewer than two tasks have `k` trials.
        InputError: `k` is less than 1.
    """
    of = list(trials.values()) if isinstance(trials, Mapping) else list(trials)
    if k < 1:
        raise InputError(f"k = {k} selects no trial; give 1 or more.")
    usable = [task for task in of if task.n >= k]
    if len(usable) < 2:
        most = max((task.n for task in of), default=0)
        raise GroupTooSmall(
            f"{len(usable)} of {len(of)} tasks have {k} scored trials (the most is {most}); "
            "evaluate at least two tasks with more repeats, or choose a smaller k."
        )
    values = [estimator(task, k) for task in usable]
    return mean_interval(values, seed=seed, samples=samples, confidence=confidence)


def reliability(episodes: Sequence[Episode]) -> dict[str, Interval]:
    """Compute pass@k and pass^k for each k for which at least two tasks have trials.

    Returns:
        intervals by name, such as "pass@2" and "pass^2".
    """
    trials = trials_of(episodes)
    most = sorted((task.n for task in trials.values()), reverse=True)
    found: dict[str, Interval] = {}
    for k in range(1, most[1] + 1 if len(most) > 1 else 1):
        found[f"pass@{k}"] = over_tasks(trials, k, pass_at_k)
        found[f"pass^{k}"] = over_tasks(trials, k, pass_hat_k)
    return found


def _check(trials: Trials, k: int) -> None:
    if k < 1:
        raise InputError(f"k = {k} selects no trial; give 1 or more.")
    if trials.n < k:
        raise GroupTooSmall(
            f"{trials.n} trials give no unbiased estimate for k = {k}; run at least {k} per task."
        )
