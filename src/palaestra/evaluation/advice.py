"""Advice: which agent and model to take for a suite under constraints, and how sure that is.

Whoever surely breaks a constraint is out; whoever may break it stays, with the doubt said. Of
the rest the one with the highest success is named, and every one whose difference from it
could be nothing (paired by task, corrected for the number of comparisons after Bonferroni):
among those, the cheapest is named too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation import overall
from palaestra.evaluation.leaderboard import COSTS, Contender, Leaderboard
from palaestra.evaluation.statistics import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Constraints:
    """What is asked of whoever is to be taken; means over the suite, None: anything."""

    tokens: float | None = None  # per task, at most
    seconds: float | None = None  # per task, at most
    money: float | None = None  # per task, at most
    success: float | None = None  # at least, a share

    def costs(self) -> dict[str, float]:
        """The bounds of costs that are given."""
        bounds = {"tokens": self.tokens, "seconds": self.seconds, "money": self.money}
        return {cost: bound for cost, bound in bounds.items() if bound is not None}


class Fit(StrEnum):
    MEETS = "meets"  # every constraint, as far as the intervals tell
    MAY = "may"  # an interval reaches over a constraint: more tasks would tell
    FAILS = "fails"  # a constraint is surely broken, or the contender is not ranked


@dataclass(frozen=True, slots=True)
class Verdict:
    """One contender under the constraints."""

    contender: Contender
    fit: Fit
    reasons: tuple[str, ...]  # of a doubt or a failure
    behind: Interval | None = None  # the best one's success minus this one's; None of the best


@dataclass(frozen=True, slots=True)
class Advice:
    """What to take, or that nothing fits."""

    verdicts: tuple[Verdict, ...]  # best first
    best: Contender | None  # with the highest success of those that fit or may
    frugal: Contender | None  # the cheapest that may be as good; equal to `best` where it is it
    cost: str  # in which it is the cheapest
    sentences: tuple[str, ...]  # the same in words


def advise(board: Leaderboard, constraints: Constraints, cost: str = "tokens") -> Advice:
    """Whom to take.

    Args:
        board: the contenders and what they did.
        constraints: what is asked.
        cost: by which the frugal choice is made.

    Raises:
        InputError: nobody is ranked, a cost is not known, or a constraint cannot be.
    """
    if cost not in COSTS:
        raise InputError(f"There is no cost '{cost}'; known: {', '.join(COSTS)}.")
    if constraints.success is not None and not 0 <= constraints.success <= 1:
        raise InputError(f"A success of {constraints.success:g} cannot be; give a share, 0 to 1.")
    if not board.ranked:
        raise InputError(
            "Nobody has results on the whole suite; see the notes of `palaestra leaderboard`, "
            "and finish the runs with `palaestra eval --resume RUN`."
        )
    judged = [_judge(contender, constraints) for contender in board.contenders]
    able = [verdict for verdict in judged if verdict.fit is not Fit.FAILS]
    if not able:
        return Advice(tuple(judged), None, None, cost, (_nobody(judged),))
    best = max(able, key=lambda v: (_rate(v.contender), v.fit is Fit.MEETS)).contender
    confidence = 1 - 0.05 / max(1, len(able) - 1)
    compared = [_against(verdict, best, board, confidence) for verdict in judged]
    equals = [
        verdict.contender
        for verdict in compared
        if verdict.fit is not Fit.FAILS
        and (verdict.behind is None or not verdict.behind.above_zero)
    ]
    priced = [contender for contender in equals if cost in contender.means]
    frugal = min(priced, key=lambda c: (c.means[cost], -_rate(c)), default=best)
    compared.sort(key=lambda v: (v.fit is Fit.FAILS, v.contender is not best, -_rate(v.contender)))
    said = _sentences(compared, best, frugal, equals, cost)
    return Advice(tuple(compared), best, frugal, cost, tuple(said))


def as_json(advice: Advice) -> dict[str, Any]:
    return {
        "best": advice.best.name if advice.best else None,
        "frugal": advice.frugal.name if advice.frugal else None,
        "cost": advice.cost,
        "sentences": advice.sentences,
        "verdicts": [
            {
                "name": verdict.contender.name,
                "fit": verdict.fit,
                "reasons": verdict.reasons,
                "success": asdict(verdict.contender.success) if verdict.contender.success else None,
                "means": verdict.contender.means,
                "behind": asdict(verdict.behind) if verdict.behind else None,
            }
            for verdict in advice.verdicts
        ],
    }


def _judge(contender: Contender, constraints: Constraints) -> Verdict:
    if contender.reference:
        return Verdict(contender, Fit.FAILS, ("it is the worlds' own solution, and no choice",))
    if not contender.ranked or contender.success is None:
        return Verdict(contender, Fit.FAILS, contender.missing[:1])
    broken: list[str] = []
    doubts: list[str] = []
    for cost, bound in constraints.costs().items():
        if cost not in contender.means:
            raise InputError(f"The {cost} of {contender.name} are not known; drop that constraint.")
        spread = cost_interval(contender, cost)
        if spread.low > bound:
            broken.append(f"{spread.mean:.4g} {cost} per task, more than {bound:g}")
        elif spread.high > bound:
            doubts.append(
                f"{spread.mean:.4g} {cost} per task ({spread.low:.4g} to {spread.high:.4g}) "
                f"may be more than {bound:g}"
            )
    rate, least = contender.success, constraints.success
    if least is not None and rate.high < least:
        broken.append(f"success of at most {_percent(rate.high)}, below {_percent(least)}")
    elif least is not None and rate.low < least:
        doubts.append(
            f"success {_percent(rate.mean)} ({_percent(rate.low)} to {_percent(rate.high)}) "
            f"may be below {_percent(least)}"
        )
    fit = Fit.FAILS if broken else Fit.MAY if doubts else Fit.MEETS
    return Verdict(contender, fit, tuple(broken or doubts))


def cost_interval(contender: Contender, cost: str) -> Interval:
    """The mean cost per task over the contender's worlds, with its 95 % interval.

    Each world's interval is a bootstrap over tasks; of a world with a single task nothing but
    that task's cost is known, and it counts as certain.
    """
    parts, shares = [], []
    for world, standing in contender.standings.items():
        values = list(standing.costs.get(cost, {}).values())
        if not values:
            continue
        try:
            part = mean_interval(values)
        except GroupTooSmall:
            part = Interval(values[0], values[0], values[0], 1)
        parts.append(part)
        shares.append(contender.weights[world])
    return overall.combined(parts, shares)


def _against(verdict: Verdict, best: Contender, board: Leaderboard, confidence: float) -> Verdict:
    contender = verdict.contender
    if contender is best or not contender.ranked:
        return verdict
    behind = overall.gap(best.scores, contender.scores, board.weights, confidence)
    return Verdict(contender, verdict.fit, verdict.reasons, behind)


def _sentences(
    verdicts: Sequence[Verdict],
    best: Contender,
    frugal: Contender,
    equals: Sequence[Contender],
    cost: str,
) -> list[str]:
    rate = best.success
    assert rate is not None  # whoever is ranked has one
    found = [
        f"Take {best.name}: success {_percent(rate.mean)} "
        f"({_percent(rate.low)} to {_percent(rate.high)}), the highest of those that fit."
    ]
    chosen = next(verdict for verdict in verdicts if verdict.contender is best)
    found += [f"But this is not sure: its {reason}." for reason in chosen.reasons]
    others = [contender for contender in equals if contender is not best]
    for other in others:
        behind = next(v.behind for v in verdicts if v.contender is other)
        assert behind is not None and other.success is not None
        found.append(
            f"{other.name} ({_percent(other.success.mean)}) may be as good: on the same tasks the "
            f"difference is {_points(behind)}."
        )
    if others and cost in best.means:
        if frugal is best:
            found.append(f"Of these, {best.name} is also the cheapest in {cost}.")
        else:
            found.append(
                f"The cheapest that may be as good is {frugal.name}: {frugal.means[cost]:.4g} "
                f"{cost} per task, against {best.means[cost]:.4g}."
            )
    if not others:
        found.append("No other one that fits comes near it, as far as these tasks tell.")
    else:
        found.append("More tasks would tell them apart, if anything does.")
    return found


def _nobody(verdicts: Sequence[Verdict]) -> str:
    reasons = "; ".join(f"{v.contender.name}: {', '.join(v.reasons)}" for v in verdicts)
    return f"Nobody fits. {reasons}."


def _rate(contender: Contender) -> float:
    return contender.success.mean if contender.success is not None else -1.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(gap: Interval) -> str:
    return f"{100 * gap.mean:.1f} points ({100 * gap.low:.1f} to {100 * gap.high:.1f})"
