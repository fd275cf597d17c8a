"""Advice: which agent and model to choose for a suite under constraints, with the uncertainty.

A candidate that certainly breaks a constraint is excluded; one that may break it stays, with the
reason for doubt. The advice names the remaining candidate with the highest success, all whose
difference from it may be zero (paired by task, with Bonferroni's correction for the number of
comparisons), and the cheapest among those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.reports.leaderboard import COSTS, Candidate, Leaderboard
from palaestra.evaluation.statistics import overall
from palaestra.evaluation.statistics.intervals import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Constraints:
    """The limits that a candidate has to meet; means over the suite, None: no limit."""

    tokens: float | None = None  # per task, at most
    seconds: float | None = None  # per task, at most
    money: float | None = None  # per task, at most
    success: float | None = None  # at least, a share

    def costs(self) -> dict[str, float]:
        """Return the given bounds of costs."""
        bounds = {"tokens": self.tokens, "seconds": self.seconds, "money": self.money}
        return {cost: bound for cost, bound in bounds.items() if bound is not None}


class Fit(StrEnum):
    MEETS = "meets"  # every constraint, within the intervals
    MAY = "may"  # an interval crosses a constraint: more tasks would decide
    FAILS = "fails"  # a constraint is certainly broken, or the candidate is not ranked


@dataclass(frozen=True, slots=True)
class Verdict:
    """One candidate's fit to the constraints."""

    candidate: Candidate
    fit: Fit
    reasons: tuple[str, ...]  # for doubt or exclusion
    behind: Interval | None = None  # the best one's success minus this one's; None for the best


@dataclass(frozen=True, slots=True)
class Advice:
    """The candidates to choose, or the statement that none fits."""

    verdicts: tuple[Verdict, ...]  # best first
    best: Candidate | None  # the highest success among those that fit or may fit
    frugal: Candidate | None  # the cheapest that may be as good; possibly `best` itself
    cost: str  # by which it is the cheapest
    sentences: tuple[str, ...]  # the advice as text


def advise(board: Leaderboard, constraints: Constraints, cost: str = "tokens") -> Advice:
    """Choose candidates under constraints.

    Args:
        board: the candidates and their results.
        constraints: the limits.
        cost: the cost of the frugal choice.

    Raises:
        InputError: no candidate is ranked, a cost is unknown, or a constraint is invalid.
    """
    if cost not in COSTS:
        raise InputError(f"There is no cost '{cost}'; choose from {', '.join(COSTS)}.")
    if constraints.success is not None and not 0 <= constraints.success <= 1:
        raise InputError(f"A success of {constraints.success:g} is invalid; give a share, 0 to 1.")
    if board.games and not board.candidates:
        raise InputError(
            "The runs hold games between players only, which rank no candidate; rate the policies "
            "with: palaestra ratings RUN."
        )
    if not board.ranked:
        raise InputError(
            "No candidate has results on the whole suite; see the notes of `palaestra "
            "leaderboard`, and finish the runs with `palaestra eval --resume RUN`."
        )
    judged = [_judge(candidate, constraints) for candidate in board.candidates]
    fitting = [verdict for verdict in judged if verdict.fit is not Fit.FAILS]
    if not fitting:
        return Advice(tuple(judged), None, None, cost, (_none_fits(judged),))
    best = max(fitting, key=lambda v: (_rate(v.candidate), v.fit is Fit.MEETS)).candidate
    confidence = 1 - 0.05 / max(1, len(fitting) - 1)
    compared = [_against(verdict, best, board, confidence) for verdict in judged]
    equals = [
        verdict.candidate
        for verdict in compared
        if verdict.fit is not Fit.FAILS
        and (verdict.behind is None or not verdict.behind.above_zero)
    ]
    priced = [candidate for candidate in equals if cost in candidate.means]
    frugal = min(priced, key=lambda c: (c.means[cost], -_rate(c)), default=best)
    compared.sort(key=lambda v: (v.fit is Fit.FAILS, v.candidate is not best, -_rate(v.candidate)))
    sentences = _sentences(compared, best, frugal, equals, cost)
    return Advice(tuple(compared), best, frugal, cost, tuple(sentences))


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the advice as a JSON object."""
    return {
        "best": advice.best.name if advice.best else None,
        "frugal": advice.frugal.name if advice.frugal else None,
        "cost": advice.cost,
        "sentences": advice.sentences,
        "verdicts": [
            {
                "name": verdict.candidate.name,
                "fit": verdict.fit,
                "reasons": verdict.reasons,
                "success": asdict(verdict.candidate.success) if verdict.candidate.success else None,
                "means": verdict.candidate.means,
                "behind": asdict(verdict.behind) if verdict.behind else None,
            }
            for verdict in advice.verdicts
        ],
    }


def _judge(candidate: Candidate, constraints: Constraints) -> Verdict:
    if candidate.reference:
        reason = "it is the environments' own oracle, which is not a choice"
        return Verdict(candidate, Fit.FAILS, (reason,))
    if not candidate.ranked or candidate.success is None:
        return Verdict(candidate, Fit.FAILS, candidate.missing[:1])
    broken: list[str] = []
    doubts: list[str] = []
    for cost, bound in constraints.costs().items():
        if cost not in candidate.means:
            raise InputError(f"The {cost} of {candidate.name} are unknown; drop that constraint.")
        spread = cost_interval(candidate, cost)
        if spread.low > bound:
            broken.append(f"{spread.mean:.4g} {cost} per task, more than {bound:g}")
        elif spread.high > bound:
            doubts.append(
                f"{spread.mean:.4g} {cost} per task ({spread.low:.4g} to {spread.high:.4g}) "
                f"may be more than {bound:g}"
            )
    rate, least = candidate.success, constraints.success
    if least is not None and rate.high < least:
        broken.append(f"success of at most {_percent(rate.high)}, below {_percent(least)}")
    elif least is not None and rate.low < least:
        doubts.append(
            f"success {_percent(rate.mean)} ({_percent(rate.low)} to {_percent(rate.high)}) "
            f"may be below {_percent(least)}"
        )
    fit = Fit.FAILS if broken else Fit.MAY if doubts else Fit.MEETS
    return Verdict(candidate, fit, tuple(broken or doubts))


def cost_interval(candidate: Candidate, cost: str) -> Interval:
    """Return the mean cost per task over the candidate's environments, with its 95 % interval.

    Each environment's interval is a bootstrap over tasks; with a single task, its cost counts as
    certain.
    """
    parts, shares = [], []
    for id, standing in candidate.standings.items():
        values = list(standing.costs.get(cost, {}).values())
        if not values:
            continue
        try:
            part = mean_interval(values)
        except GroupTooSmall:
            part = Interval(values[0], values[0], values[0], 1)
        parts.append(part)
        shares.append(candidate.weights[id])
    return overall.combined(parts, shares)


def _against(verdict: Verdict, best: Candidate, board: Leaderboard, confidence: float) -> Verdict:
    candidate = verdict.candidate
    if candidate is best or not candidate.ranked:
        return verdict
    behind = overall.gap(best.scores, candidate.scores, board.weights, confidence)
    return Verdict(candidate, verdict.fit, verdict.reasons, behind)


def _sentences(
    verdicts: Sequence[Verdict],
    best: Candidate,
    frugal: Candidate,
    equals: Sequence[Candidate],
    cost: str,
) -> list[str]:
    rate = best.success
    assert rate is not None  # every ranked candidate has one
    found = [
        f"Choose {best.name}: success {_percent(rate.mean)} "
        f"({_percent(rate.low)} to {_percent(rate.high)}), the highest of those that fit."
    ]
    chosen = next(verdict for verdict in verdicts if verdict.candidate is best)
    found += [f"But this is uncertain: its {reason}." for reason in chosen.reasons]
    others = [candidate for candidate in equals if candidate is not best]
    for other in others:
        behind = next(v.behind for v in verdicts if v.candidate is other)
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
        found.append("On these tasks, no other candidate that fits may be as good.")
    else:
        found.append("More tasks may separate them.")
    return found


def _none_fits(verdicts: Sequence[Verdict]) -> str:
    reasons = "; ".join(f"{v.candidate.name}: {', '.join(v.reasons)}" for v in verdicts)
    return f"No candidate fits. {reasons}."


def _rate(candidate: Candidate) -> float:
    return candidate.success.mean if candidate.success is not None else -1.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(gap: Interval) -> str:
    return f"{100 * gap.mean:.1f} points ({100 * gap.low:.1f} to {100 * gap.high:.1f})"
