"""Counterfactual attribution: the turn whose outcome changes what was still possible.

With the oracle (exact): the last state from which the task could be solved is the one before the
losing turn. What came before it was recoverable, what came after it no longer mattered.
With chance or a policy (sampled): the turn with the largest fall of the success rate.

The labels of turns are those of AgentProcessBench: useful, neutral, wrong; here from the
exact values instead of people.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from palaestra.core.episode import Episode
from palaestra.evaluation.attribution.attribution import Attribution, Ending, role_of
from palaestra.evaluation.attribution.values import Value


class Label(StrEnum):
    USEFUL = "useful"  # the oracle's way became shorter
    NEUTRAL = "neutral"  # the task can still be solved, and is no nearer
    WRONG = "wrong"  # the task can no longer be solved


def losing_turn(episode: Episode, values: Sequence[Value], actions: int = 0) -> Attribution:
    """The exact attribution from the oracle's values, one per state.

    Args:
        episode: a failed one.
        values: before each turn and after the last one, as `oracle_values` gives them.
        actions: what finding out took.
    """
    _check(episode, values)
    scores = tuple(value.rate for value in values)
    solvable = [turn for turn, value in enumerate(values) if value.successes]
    if not solvable:
        why = "the oracle knows no way even from the start (within the turns allowed)"
        return Attribution("oracle", Ending.START, None, True, why, scores=scores, actions=actions)
    turn = solvable[-1]
    if turn == len(episode.steps):
        why = f"after its last turn the task could still be solved in {values[turn].way} actions"
        return Attribution(
            "oracle", Ending.GAVE_UP, None, True, why, scores=scores, actions=actions
        )
    why = f"before it the oracle solves the task in {values[turn].way} actions, after it never"
    return Attribution(
        "oracle",
        Ending.TURN,
        turn,
        True,
        why,
        role_of(episode, turn),
        scores=scores,
        actions=actions,
    )


def largest_drop(
    episode: Episode, values: Sequence[Value | None], method: str, actions: int = 0
) -> Attribution:
    """The turn with the largest fall of a sampled success rate; the first of equal ones."""
    _check(episode, values)
    scores = tuple(value.rate if value else None for value in values)
    drops = {
        turn: before.rate - after.rate
        for turn, (before, after) in enumerate(pairwise(values))
        if before is not None and after is not None
    }
    turn = max(drops, key=lambda t: (drops[t], -t), default=None)
    if turn is None or drops[turn] <= 0:
        why = "the success rate falls at no turn; try more samples, or another method"
        return Attribution(method, Ending.UNKNOWN, None, False, why, scores=scores, actions=actions)
    before, after = values[turn], values[turn + 1]
    assert before is not None and after is not None
    sure = turn + 1 < len(values) - 1 and before.interval.low > after.interval.high
    last = turn + 1 == len(values) - 1
    doubt = "" if sure or last else "; the intervals overlap, so it may be chance"
    why = f"success falls from {_told(before)} to {'0 (the end)' if last else _told(after)}{doubt}"
    role = role_of(episode, turn)
    return Attribution(method, Ending.TURN, turn, False, why, role, scores=scores, actions=actions)


def labels(values: Sequence[Value]) -> list[Label]:
    """Useful, neutral or wrong, for each turn; a turn after a loss is wrong as well.

    That later turns inherit the label is AgentProcessBench's rule of propagation: an error counts
    until it is put right.
    """
    found = []
    for before, after in pairwise(values):
        if not after.successes:
            found.append(Label.WRONG)
        elif not before.successes or before.way is None or after.way is None:
            found.append(Label.USEFUL)
        else:
            found.append(Label.USEFUL if after.way < before.way else Label.NEUTRAL)
    return found


def _check(episode: Episode, values: Sequence[Value | None]) -> None:
    if len(values) != len(episode.steps) + 1:
        raise ValueError(f"{len(episode.steps)} turns have one state more, not {len(values)}")


def _told(value: Value) -> str:
    bounds = value.interval
    return f"{value.rate:.0%} ({bounds.low:.0%} to {bounds.high:.0%}, {value.n} tries)"
