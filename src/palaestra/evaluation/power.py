"""How small a difference an evaluation can find, before it runs: too few tasks say nothing.

A comparison that would miss most real differences proves nothing by finding none. The
smallest difference that n tasks detect is `(z of alpha + z of power) * spread / sqrt(n)`,
where the spread is the standard deviation of one task's difference (Miller 2024, "Adding
error bars to evals"). It falls with the square root of n: half the difference takes four
times the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from statistics import NormalDist

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.paired import mcnemar

ALPHA = 0.05  # chance of a false alarm, two-sided
POWER = 0.8  # chance that a difference of that size is found
WORTH = 0.1  # a difference of success that most readers would want to be found


def pair_spread(rate: float, correlation: float = 0.0) -> float:
    """The standard deviation of one task's difference between two runs of single trials.

    Args:
        rate: the success rate that both are near; 0.5 is the worst case.
        correlation: between the two runs over tasks. 0 is the worst case; the same model
            before and after some training is often at 0.3 to 0.7.

    Raises:
        InputError: the rate is not within [0, 1], or the correlation not within [-1, 1].
    """
    if not 0 <= rate <= 1 or not -1 <= correlation <= 1:
        raise InputError(
            f"A rate of {rate} with a correlation of {correlation} cannot be; "
            "give 0 to 1 and -1 to 1."
        )
    return sqrt(2 * rate * (1 - rate) * (1 - correlation))


def observed_spread(differences: Sequence[float]) -> float:
    """The same from an evaluation that has run, for scores between 0 and 1.

    As if two more tasks had been seen, at squared distances of 1 and 0 from the mean: few
    tasks without a flip do not prove that none can, so the spread is never 0.
    """
    n = len(differences)
    mean = sum(differences) / n if n else 0.0
    return sqrt((sum((d - mean) ** 2 for d in differences) + 1) / (n + 2))


def detectable(n: int, spread: float, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest mean difference that a paired comparison of `n` tasks finds.

    Args:
        n: tasks that both runs live through.
        spread: standard deviation of one task's difference, e.g. of `pair_spread`.
        alpha: chance of a false alarm, two-sided.
        power: chance that the difference is found.

    Raises:
        GroupTooSmall: no task.
        InputError: a chance is not between 0 and 1, or the spread is negative.
    """
    _check(n, spread)
    return _quantiles(alpha, power) * spread / sqrt(n)


def tasks_needed(
    difference: float, spread: float, *, alpha: float = ALPHA, power: float = POWER
) -> int:
    """How many tasks a paired comparison needs to find a mean difference of that size.

    Raises:
        InputError: the difference is 0, a chance not between 0 and 1, the spread negative.
    """
    _check(1, spread)
    if not difference:
        raise InputError("No number of tasks finds a difference of 0; give one worth finding.")
    return max(1, ceil((_quantiles(alpha, power) * spread / difference) ** 2 - 1e-9))


def fewest_tasks(alpha: float = ALPHA) -> int:
    """With fewer single trials per run, not even a flip of every task is significant."""
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
    """One sentence for a reader where so few tasks cannot show a difference worth having.

    Args:
        differences: of the scores of each task, between -1 and 1.
        worth: the smallest difference that the reader would want to know of.
        alpha: chance of a false alarm, two-sided.
        power: chance that it is found.

    Returns:
        the sentence; None where a difference of `worth` would be found.
    """
    n = len(differences)
    fewest = fewest_tasks(alpha)
    if n < fewest:
        return (
            f"{_tasks(n)} in common cannot show a difference, whatever happens; "
            f"evaluate at least {fewest}."
        )
    spread = observed_spread(differences)
    least = detectable(n, spread, alpha=alpha, power=power)
    if least <= worth:
        return None
    needed = tasks_needed(worth, spread, alpha=alpha, power=power)
    return (
        f"With {_tasks(n)} in common only a difference of {100 * least:.0f} points or more "
        f"would be found {100 * power:.0f} % of the time; finding one of {100 * worth:.0f} "
        f"takes about {needed} tasks."
    )


def foresight(n: int) -> str:
    """One sentence, before anything runs, on what an evaluation of `n` tasks will be able to show.

    At worst: of rates near one half, without repeats, and runs that have nothing in common.
    """
    least = detectable(n, pair_spread(0.5)) if n else 1.0
    if n < fewest_tasks() or least >= 1:
        return f"{_tasks(n)} will hardly tell two such runs apart; more tasks would"
    return (
        f"two such runs on these {_tasks(n)} are told apart, four times in five, where they "
        f"differ by {100 * least:.0f} points or more (fewer if they solve much the same tasks)"
    )


def _tasks(n: int) -> str:
    return f"{n} task" if n == 1 else f"{n} tasks"


def _quantiles(alpha: float, power: float) -> float:
    for chance in (alpha, power):
        if not 0 < chance < 1:
            raise InputError(f"A chance of {chance} cannot be; give one between 0 and 1.")
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)


def _check(n: int, spread: float) -> None:
    if n < 1:
        raise GroupTooSmall("No task finds no difference; plan at least one.")
    if not spread >= 0:
        raise InputError(f"A spread of {spread} cannot be; give a standard deviation.")
