"""The time limit of a run: RL ends early enough for the tests that follow it.

A run's time is that of all its processes together; what a stopped run waits before it is resumed
does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.training.run_context import RunContext

LOOK_BACK = 3  # steps of which the longest is expected next


def seconds_left(context: RunContext) -> float | None:
    """Return the seconds after which RL ends, whatever its steps are; None where nothing limits it.

    What limits it is the run's `minutes`, or `rl.tokens` at the rate so far.
    """
    limits = [_left_of_minutes(context)]
    part, used = context.recipe.rl, _tokens(spent := _steps(context))
    if part.tokens is not None and used:
        limits.append((part.tokens - used) * sum(v["seconds"] for v in spent) / used)
    return min((limit for limit in limits if limit is not None), default=None)


def used_up(context: RunContext, step: int) -> bool:
    """Return whether RL must end after that step: no time is left for another, or no tokens."""
    spent, part = _steps(context, step), context.recipe.rl
    left = _left_of_minutes(context)
    if left is not None and left < max((v["seconds"] for v in spent[-LOOK_BACK:]), default=0.0):
        return True
    return part.tokens is not None and _tokens(spent) >= part.tokens


def _left_of_minutes(context: RunContext) -> float | None:
    """Return the seconds for RL before tests that take as long as those before it."""
    minutes = context.recipe.minutes
    if minutes is None:
        return None
    return 60 * minutes - context.accounts.seconds - _seconds_of_tests(context)


def _steps(context: RunContext, last: int | None = None) -> list[dict[str, float]]:
    rows = context.store.metrics(context.record)
    return [values for step, values in rows if last is None or step <= last]


def _tokens(steps: Sequence[Mapping[str, float]]) -> float:
    return sum(v["sampled_tokens"] + v["prompt_tokens"] for v in steps)


def _seconds_of_tests(context: RunContext) -> float:
    known = {row["name"]: row["seconds"] for row in context.accounts.stages_done()}
    test = known.get("test/imitation", known.get("test/base", 0.0))
    if context.recipe.environment.transfer is None:
        return float(test)
    part = context.recipe.evaluation  # the untrained policy takes no transfer test
    return float(test + known.get("transfer/imitation", test * part.transfer_tasks / part.tasks))
