"""Statistical power: the smallest difference that an evaluation can detect, before it runs.

A comparison that would miss most real differences proves nothing by finding none. The
smallest difference that n tasks detect is `(z of alpha + z of power) * spread / sqrt(n)`,
where the spread is the standard deviation of one task's difference (Miller 2024, "Adding
error bars to evals"). It falls with the square root of n: half the difference needs four
times the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from statistics import NormalDist

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.paired import mcnemar

ALPHA = 0.05  # probability of a false positive, two-sided
POWER = 0.8  # probability that a difference of that size is detected
WORTH = 0.1  # a difference of success that most readers would want to detect


def pair_spread(rate: float, correlation: float = 0.0) -> float:
    """Return the standard deviation of one task's difference between two single-trial runs.

    Args:
        rate: the approximate success rate of both; 0.5 is the worst case.
        correlation: between the two runs over tasks. 0 is the worst case; the same model
            before and after some training is often at 0.3 to 0.7.

    Raises:
        InputError: the rate is not within [0, 1], or the correlation not within [-1, 1].
    """
    if not 0 <= rate <= 1 or not -1 <= correlation <= 1:
        raise InputError(
            f"A rate of {rate} with a correlation of {correlation} is invalid; "
            "give 0 to 1 and -1 to 1."
        )
    return sqrt(2 * rate * (1 - rate) * (1 - correlation))


def observed_spread(differences: Sequence[float]) -> float:
    """Estimate the spread from a finished evaluation with scores between 0 and 1.

    Two pseudo-tasks are added, at squared distances of 1 and 0 from the mean, so the spread is
    never 0: a few tasks without a flip do not prove that none can flip.
    """
    n = len(differences)
    mean = sum(differences) / n if n else 0.0
    return sqrt((sum((d - mean) ** 2 for d in differences) + 1) / (n + 2))


def detectable(n: int, spread: float, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """Return the smallest mean difference that a paired comparison of `n` tasks detects.

    Args:
        n: tasks in common.
        spread: standard deviation of one task's difference, e.g. from `pair_spread`.
        alpha: probability of a false positive, two-sided.
        power: probability that the difference is detected.

    Raises:
        GroupTooSmall: there is no task.
        InputError: a probability is not between 0 and 1, or the spread is negative.
    """
    _check(n, spread)
    return _quantiles(alpha, power) * spread / sqrt(n)


def tasks_needed(
    difference: float, spread: float, *, alpha: float = ALPHA, power: float = POWER
) -> int:
    """Return how many tasks a paired comparison needs to detect a mean difference of that size.

    Raises:
        InputError: the difference is 0, a probability is not between 0 and 1, or the spread is
            negative.
    """
    _check(1, spread)
    if not difference:
        raise InputError("A difference of 0 cannot be detected; give a larger one.")
    return max(1, ceil((_quantiles(alpha, power) * spread / difference) ** 2 - 1e-9))


def fewest_tasks(alpha: float = ALPHA) -> int:
    """Return the fewest single trials with which a flip of every task is significant."""
    n = 1
    while mcnemar(n, 0) > alpha:
        n += 1
    return n


def warning(
    differences: Sequence[float],
    *,
    worth: float = WORTH,
    alpha: float = ALPHA,
    power: float = POWER,
) -> str | None:
    """Return one sentence for the reader if there are too few tasks to detect `worth`.

    Args:
        differences: of the scores of each task, between -1 and 1.
        worth: the smallest difference of interest.
        alpha: probability of a false positive, two-sided.
        power: probability that it is detected.

    Returns:
        the sentence; None if a difference of `worth` would be detected.
    """
    n = len(differences)
    fewest = fewest_tasks(alpha)
    if n < fewest:
        return (
            f"{_tasks(n)} in common cannot show any significant difference; "
            f"evaluate at least {fewest}."
        )
    spread = observed_spread(differences)
    least = detectable(n, spread, alpha=alpha, power=power)
    if least <= worth:
        return None
    needed = tasks_needed(worth, spread, alpha=alpha, power=power)
    return (
        f"With {_tasks(n)} in common only a difference of {100 * least:.0f} points or more "
        f"would be found {100 * power:.0f} % of the time; one of {100 * worth:.0f} points "
        f"needs about {needed} tasks."
    )


def foresight(n: int) -> str:
    """Return one sentence on the difference that an evaluation of `n` tasks can detect.

    It states the worst case: rates near one half, no repeats, and uncorrelated runs.
    """
    least = detectable(n, pair_spread(0.5)) if n else 1.0
    if n < fewest_tasks() or least >= 1:
        return f"{_tasks(n)} can hardly separate two such runs; use more tasks"
    return (
        f"two such runs on these {_tasks(n)} can be told apart, four times in five, if they "
        f"differ by {100 * least:.0f} points or more (fewer if they solve much the same tasks)"
    )


def _tasks(n: int) -> str:
    return f"{n} task" if n == 1 else f"{n} tasks"


def _quantiles(alpha: float, power: float) -> float:
    for probability in (alpha, power):
        if not 0 < probability < 1:
            raise InputError(
                f"A probability of {probability} is invalid; give one between 0 and 1."
            )
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)


def _check(n: int, spread: float) -> None:
    if n < 1:
        raise GroupTooSmall("An evaluation of 0 tasks detects nothing; plan at least one.")
    if not spread >= 0:
        raise InputError(f"A spread of {spread} is invalid; give a standard deviation.")
