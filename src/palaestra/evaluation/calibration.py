"""Calibration of self-reported success: whether an agent knows when it has succeeded.

An episode's report is its label `self_report`: a chance such as "0.8", or a plain word such
as "success" or "no", which stands for 1 or 0. Without that label it is the last `Confidence: …`
of its replies, as `react?confidence=yes` gives it. It is compared with what the environment says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from palaestra.agents.react import confidence_of
from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.paired import clustered_mean
from palaestra.evaluation.statistics import Interval

LABEL = "self_report"
WORDS = {"success": 1.0, "yes": 1.0, "true": 1.0, "failure": 0.0, "no": 0.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class Bin:
    """The episodes whose reports lie in one part of [0, 1]."""

    low: float
    high: float  # belongs to the next bin, but for the last one
    count: int
    reported: float  # mean of the reports
    solved: float  # share of the episodes that are really solved


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well reports fit what happened."""

    n: int  # scored episodes with a report
    silent: int  # scored episodes without one
    brier: float  # mean squared distance of report and result: 0 is perfect, 0.25 is a coin's
    ece: float  # expected calibration error: distance of report and rate, mean over bins by count
    overconfidence: Interval | None  # mean report minus success rate; None for a single task
    bins: tuple[Bin, ...]  # those that hold an episode


def report_of(episode: Episode) -> float | None:
    """The chance of success that the agent reports at the end; None without a report.

    Raises:
        InputError: the label is neither a chance nor a known word.
    """
    if LABEL not in episode.labels:
        told = (confidence_of(call.reply.content) for call in reversed(episode.calls))
        return next((chance for chance in told if chance is not None), None)
    said = episode.labels[LABEL].strip().lower()
    if said in WORDS:
        return WORDS[said]
    try:
        chance = float(said)
    except ValueError:
        chance = -1.0
    if not (isfinite(chance) and 0 <= chance <= 1):
        raise InputError(
            f"{episode.key} reports '{episode.labels[LABEL]}', which is no chance of success; "
            f"label it with 0 to 1 or one of: {', '.join(WORDS)}."
        )
    return chance


def calibration(episodes: Sequence[Episode], *, bins: int = 10) -> Calibration:
    """Brier score and expected calibration error of self-reports, over scored episodes.

    Args:
        episodes: of one run; repeats of a task are drawn together for the interval.
        bins: of equal width over [0, 1].

    Raises:
        GroupTooSmall: no scored episode carries a report.
        InputError: a report that cannot be read, or no bin.
    """
    if bins < 1:
        raise InputError(f"{bins} bins hold nothing; give 1 or more.")
    scored = [episode for episode in episodes if episode.outcome.scored]
    held: dict[int, list[tuple[float, float]]] = {}
    excess: dict[int, list[float]] = {}
    for episode in scored:
        report = report_of(episode)
        if report is not None:
            solved = float(episode.outcome.solved)
            held.setdefault(min(bins - 1, int(report * bins)), []).append((report, solved))
            excess.setdefault(episode.key.group, []).append(report - solved)
    pairs = [pair for of in held.values() for pair in of]
    if not pairs:
        raise GroupTooSmall(
            f"None of {len(scored)} scored episodes says how sure its agent was; "
            "take the agent react?confidence=yes, or label them."
        )
    made = tuple(_bin(place, bins, of) for place, of in sorted(held.items()))
    return Calibration(
        n=len(pairs),
        silent=len(scored) - len(pairs),
        brier=sum((report - solved) ** 2 for report, solved in pairs) / len(pairs),
        ece=sum(b.count * abs(b.reported - b.solved) for b in made) / len(pairs),
        overconfidence=clustered_mean(list(excess.values())) if len(excess) > 1 else None,
        bins=made,
    )


def _bin(place: int, bins: int, pairs: Sequence[tuple[float, float]]) -> Bin:
    count = len(pairs)
    return Bin(
        low=place / bins,
        high=(place + 1) / bins,
        count=count,
        reported=sum(report for report, _ in pairs) / count,
        solved=sum(solved for _, solved in pairs) / count,
    )
