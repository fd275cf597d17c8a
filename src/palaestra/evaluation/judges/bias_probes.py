"""Bias probes: changes to a case's presentation that must not change a judge's verdict.

`order`    two cases in both orders: how often the choice follows the position, not the case
`length`   filler added to each turn: how far the verdict moves
`brevity`  the agent's words around its actions removed: how far it moves
`name`     the author named as the judge's own model, or as another one: how far it moves
`self`     how much more lenient the judge is with episodes of its own model

The first four change one factor and compare pairs. `self` has to compare different episodes:
leniency is the verdict minus the truth, which is known. Zheng et al. 2023
describe the three biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.judges.case import Case, authors, padded, shortened
from palaestra.evaluation.judges.verdict import Choice, Judge, Verdict
from palaestra.evaluation.statistics.intervals import Interval, mean_interval, wilson

OTHER = "another model"


@dataclass(frozen=True, slots=True)
class Effect:
    """The result of one probe."""

    probe: str
    effect: Interval | None  # None: not measurable
    flipped: Interval | None  # the share of cases (or pairs) whose verdict changed
    silent: int  # cases or pairs dropped because a verdict was missing
    note: str  # what the effect means, or why it is None


async def order_effect(judge: Judge, pairs: Sequence[tuple[Case, Case]]) -> Effect:
    """Judge each pair in both orders; the effect is the share of first positions minus 0.5."""
    first: list[float] = []
    flips = silent = 0
    for a, b in pairs:
        there, back = (await judge.prefer(a, b)).choice, (await judge.prefer(b, a)).choice
        if Choice.NONE in (there, back):
            silent += 1
            continue
        positions = [_first(there), _first(back)]
        first.append(sum(positions) / 2 - 0.5)
        flips += _swapped(back) is not there
    note = "share of pairs in which the first position is chosen, minus one half"
    if len(first) < 2:
        return Effect("order", None, None, silent, "fewer than two pairs got both verdicts")
    return Effect("order", mean_interval(first), wilson(flips, len(first)), silent, note)


async def length_effects(
    judge: Judge, cases: Sequence[Case], plain: Sequence[Verdict]
) -> list[Effect]:
    """Judge the same cases with more words, and with fewer.

    Args:
        judge: the judge to measure.
        cases: the judged cases.
        plain: its verdicts on the unchanged cases, in their order.
    """
    more = await _moved(judge, "length", cases, plain, padded, "verdict with filler, minus without")
    note = "verdict without the words around actions, minus with them"
    return [more, await _moved(judge, "brevity", cases, plain, shortened, note)]


async def name_effect(judge: Judge, model: str, cases: Sequence[Case]) -> Effect:
    """Judge the same cases with `model` (the judge's own) and another one as author."""
    others = [replace(case, author=OTHER) for case in cases]
    plain = await judge.judge_all(others)
    note = f"verdict with '{model}' as author, minus with {OTHER}"
    return await _moved(judge, "name", others, plain, lambda c: replace(c, author=model), note)


def self_effect(model: str, cases: Sequence[Case], plain: Sequence[Verdict]) -> Effect:
    """Return the leniency with episodes of `model` minus the leniency with all others."""
    own: list[float] = []
    other: list[float] = []
    silent = 0
    for case, verdict in zip(cases, plain, strict=True):
        if verdict.value is None:
            silent += 1
            continue
        leniency = verdict.value - case.episode.outcome.solved
        (own if model in authors(case.episode) else other).append(leniency)
    if len(own) < 2 or len(other) < 2:
        why = f"it needs two episodes by '{model}' and two by others; got {len(own)}, {len(other)}"
        return Effect("self", None, None, silent, why)
    note = f"verdict minus truth, on episodes by '{model}' minus on those of others"
    return Effect("self", _difference(own, other), None, silent, note)


async def _moved(
    judge: Judge,
    probe: str,
    cases: Sequence[Case],
    plain: Sequence[Verdict],
    change: Callable[[Case], Case],
    note: str,
) -> Effect:
    """Measure how far a change moves the verdicts; cases that it leaves equal are skipped."""
    moves: list[float] = []
    flips = silent = 0
    both = [(change(case), before) for case, before in zip(cases, plain, strict=True)]
    moved = [(new, old) for (new, old), case in zip(both, cases, strict=True) if new != case]
    again = await judge.judge_all([new for new, _ in moved])
    for (_, before), after in zip(moved, again, strict=True):
        if before.value is None or after.value is None:
            silent += 1
            continue
        moves.append(after.value - before.value)
        flips += after.solved != before.solved
    try:
        return Effect(probe, mean_interval(moves), wilson(flips, len(moves)), silent, note)
    except GroupTooSmall:
        return Effect(probe, None, None, silent, "fewer than two cases to change were judged twice")


def _difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the difference of two means, bounded by the bootstrap of each (Zou, Donner 2008)."""
    x, y = mean_interval(a), mean_interval(b)
    middle = x.mean - y.mean
    low = middle - ((x.mean - x.low) ** 2 + (y.high - y.mean) ** 2) ** 0.5
    high = middle + ((x.high - x.mean) ** 2 + (y.mean - y.low) ** 2) ** 0.5
    return Interval(middle, low, high, x.n + y.n)


def _first(choice: Choice) -> float:
    return {Choice.FIRST: 1.0, Choice.EQUAL: 0.5}.get(choice, 0.0)


def _swapped(choice: Choice) -> Choice:
    """Return the same preference for the two cases in reverse order."""
    return {Choice.FIRST: Choice.SECOND, Choice.SECOND: Choice.FIRST}.get(choice, choice)
