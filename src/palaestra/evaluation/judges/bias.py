"""Bias probes: the same case told another way must not change what a judge says of it.

`order`    two cases in both orders: how often the choice follows the place and not the case
`length`   each turn says more, without saying anything: how far the verdict moves
`brevity`  what the agent said around its actions is left out: how far it moves
`name`     the author is said to be the judge's own model, or another one: how far it moves
`self`     how much milder the judge is with episodes of its own model than with the others

The first four change one thing and compare pairs. `self` compares different episodes, as there is
no other way: the mildness is the verdict less the truth, which is known. Zheng et al. 2023
describe the three biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.judges.case import Case, authors, padded, shortened
from palaestra.evaluation.judges.verdict import Choice, Judge, Verdict
from palaestra.evaluation.statistics import Interval, mean_interval, wilson

OTHER = "another model"


@dataclass(frozen=True, slots=True)
class Effect:
    """What one probe measured."""

    probe: str
    effect: Interval | None  # None: it could not be measured
    flipped: Interval | None  # the share of cases (or pairs) whose verdict changed
    silent: int  # cases or pairs left out, as one of their verdicts was none
    note: str  # what the effect means, or why there is none


async def order_effect(judge: Judge, pairs: Sequence[tuple[Case, Case]]) -> Effect:
    """Each pair in both orders; the effect is the share of first places chosen, less one half."""
    first: list[float] = []
    flips = silent = 0
    for a, b in pairs:
        there, back = (await judge.prefer(a, b)).choice, (await judge.prefer(b, a)).choice
        if Choice.NONE in (there, back):
            silent += 1
            continue
        places = [_first(there), _first(back)]
        first.append(sum(places) / 2 - 0.5)
        flips += _turned(back) is not there
    note = "share of pairs in which the first place is chosen, less one half"
    if len(first) < 2:
        return Effect("order", None, None, silent, "fewer than two pairs got both verdicts")
    return Effect("order", mean_interval(first), wilson(flips, len(first)), silent, note)


async def length_effects(
    judge: Judge, cases: Sequence[Case], plain: Sequence[Verdict]
) -> list[Effect]:
    """The same cases in more words, and in fewer.

    Args:
        judge: who judges.
        cases: what was judged.
        plain: its verdicts on the cases as they are, in their order.
    """
    more = await _moved(judge, "length", cases, plain, padded, "verdict with filler, less without")
    note = "verdict without the words around actions, less with them"
    return [more, await _moved(judge, "brevity", cases, plain, shortened, note)]


async def name_effect(judge: Judge, model: str, cases: Sequence[Case]) -> Effect:
    """The same cases, said to be by `model` (the judge's own) and by another one."""
    others = [replace(case, author=OTHER) for case in cases]
    plain = [await judge.judge(case) for case in others]
    note = f"verdict where the author is said to be '{model}', less where it is {OTHER}"
    return await _moved(judge, "name", others, plain, lambda c: replace(c, author=model), note)


def self_effect(model: str, cases: Sequence[Case], plain: Sequence[Verdict]) -> Effect:
    """Mildness with episodes of `model` less mildness with all others; both are known."""
    own: list[float] = []
    other: list[float] = []
    silent = 0
    for case, verdict in zip(cases, plain, strict=True):
        if verdict.value is None:
            silent += 1
            continue
        mild = verdict.value - case.episode.outcome.solved
        (own if model in authors(case.episode) else other).append(mild)
    if len(own) < 2 or len(other) < 2:
        why = f"it needs two episodes by '{model}' and two by others; got {len(own)}, {len(other)}"
        return Effect("self", None, None, silent, why)
    note = f"verdict less truth, on episodes by '{model}' less on those of others"
    return Effect("self", _apart(own, other), None, silent, note)


async def _moved(
    judge: Judge,
    probe: str,
    cases: Sequence[Case],
    plain: Sequence[Verdict],
    change: Callable[[Case], Case],
    note: str,
) -> Effect:
    """How far a change moves the verdicts of the cases in which it changes anything."""
    moves: list[float] = []
    flips = silent = 0
    for case, before in zip(cases, plain, strict=True):
        changed = change(case)
        if changed == case:
            continue
        after = await judge.judge(changed)
        if before.value is None or after.value is None:
            silent += 1
            continue
        moves.append(after.value - before.value)
        flips += after.solved != before.solved
    try:
        return Effect(probe, mean_interval(moves), wilson(flips, len(moves)), silent, note)
    except GroupTooSmall:
        return Effect(probe, None, None, silent, "fewer than two cases to change were judged twice")


def _apart(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The difference of two means, bounded by the bootstrap of each (Zou and Donner 2008)."""
    x, y = mean_interval(a), mean_interval(b)
    middle = x.mean - y.mean
    low = middle - ((x.mean - x.low) ** 2 + (y.high - y.mean) ** 2) ** 0.5
    high = middle + ((x.high - x.mean) ** 2 + (y.mean - y.low) ** 2) ** 0.5
    return Interval(middle, low, high, x.n + y.n)


def _first(choice: Choice) -> float:
    return {Choice.FIRST: 1.0, Choice.EQUAL: 0.5}.get(choice, 0.0)


def _turned(choice: Choice) -> Choice:
    """The same preference with the two cases the other way round."""
    return {Choice.FIRST: Choice.SECOND, Choice.SECOND: Choice.FIRST}.get(choice, choice)
