"""Counterfactual attribution: the turn after which the task could no longer be solved.

With the oracle (exact): the losing turn follows the last state from which the task could be
solved. Earlier turns were recoverable; later turns no longer mattered.
With random actions or a policy (sampled): the turn with the largest drop of the success rate.

The labels of turns are those of AgentProcessBench (useful, neutral, wrong), computed from exact
values instead of human annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from palaestra.core.episode import Episode
from palaestra.evaluation.attribution.base import Attribution, Ending, role_of
from palaestra.evaluation.attribution.state_values import Value


class Label(StrEnum):
    USEFUL = "useful"  # the oracle's plan became shorter
    NEUTRAL = "neutral"  # the task can still be solved, and the plan is no shorter
    WRONG = "wrong"  # the task can no longer be solved


def losing_turn(episode: Episode, values: Sequence[Value], actions: int = 0) -> Attribution:
    """Return the exact attribution from the oracle's values, one per state.

    Args:
        episode: a failed episode.
        values: before each turn and after the last one, as `oracle_values` returns them.
        actions: environment actions spent on computing the values.
    """
    _check(episode, values)
    scores = tuple(value.rate for value in values)
    solvable = [turn for turn, value in enumerate(values) if value.successes]
    if not solvable:
        why = "the oracle has no plan even from the start (within the turns allowed)"
        return Attribution("oracle", Ending.START, None, True, why, scores=scores, actions=actions)
    turn = solvable[-1]
    if turn == len(episode.steps):
        length = values[turn].plan_length
        why = f"after its last turn the task could still be solved in {length} actions"
        return Attribution(
            "oracle", Ending.GAVE_UP, None, True, why, scores=scores, actions=actions
        )
    length = values[turn].plan_length
    why = f"before it the oracle solves the task in {length} actions, after it never"
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
    """Return the turn with the largest drop of a sampled success rate; the first of equal ones."""
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
    end = "0 (the end)" if last else _format_rate(after)
    why = f"success falls from {_format_rate(before)} to {end}{doubt}"
    role = role_of(episode, turn)
    return Attribution(method, Ending.TURN, turn, False, why, role, scores=scores, actions=actions)


def labels(values: Sequence[Value]) -> list[Label]:
    """Label each turn useful, neutral or wrong; a turn after the losing one is wrong as well.

    Later turns inherit the label by AgentProcessBench's propagation rule: an error counts until
    it is corrected.
    """
    found = []
    for before, after in pairwise(values):
        if not after.successes:
            found.append(Label.WRONG)
        elif not before.successes or before.plan_length is None or after.plan_length is None:
            found.append(Label.USEFUL)
        else:
            shorter = after.plan_length < before.plan_length
            found.append(Label.USEFUL if shorter else Label.NEUTRAL)
    return found


def _check(episode: Episode, values: Sequence[Value | None]) -> None:
    if len(values) != len(episode.steps) + 1:
        raise ValueError(
            f"got {len(values)} values for {len(episode.steps)} turns; pass one value per state, "
            "which is one more than the turns"
        )


def _format_rate(value: Value) -> str:
    bounds = value.interval
    return f"{value.rate:.0%} ({bounds.low:.0%} to {bounds.high:.0%}, {value.n} tries)"
