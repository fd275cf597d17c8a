"""Calibration of self-reported success: whether an agent knows when it has succeeded.

An episode's report is its label `self_report`: a probability such as "0.8", or a word such as
"success" or "no", which stands for 1 or 0. Without that label it is the last `Confidence: …`
of its replies, as `react?confidence=yes` produces it. It is compared with the episode's outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from palaestra.agents.react import confidence_of
from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.paired import clustered_mean

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
    """The agreement of reports with outcomes."""

    n: int  # scored episodes with a report
    silent: int  # scored episodes without one
    brier: float  # mean squared distance of report and result: 0 is perfect, 0.25 a fair coin's
    ece: float  # expected calibration error: distance of report and rate, mean over bins by count
    overconfidence: Interval | None  # mean report minus success rate; None for a single task
    bins: tuple[Bin, ...]  # non-empty bins


def report_of(episode: Episode) -> float | None:
    """Return the probability of success that the agent reports; None without a report.

    Raises:
        InputError: the label is neither a probability nor a known word.
    """
    if LABEL not in episode.labels:
        reports = (confidence_of(call.reply.text) for call in reversed(episode.calls))
        return next((report for report in reports if report is not None), None)
    label = episode.labels[LABEL].strip().lower()
    if label in WORDS:
        return WORDS[label]
    try:
        probability = float(label)
    except ValueError:
        probability = -1.0
    if not (isfinite(probability) and 0 <= probability <= 1):
        raise InputError(
            f"{episode.key} reports '{episode.labels[LABEL]}', which is not a probability; "
            f"label it with 0 to 1 or one of: {', '.join(WORDS)}."
        )
    return probability


def calibration(episodes: Sequence[Episode], *, bins: int = 10) -> Calibration:
    """Return Brier score and expected calibration error of self-reports, over scored episodes.

    Args:
        episodes: of one run; repeats of a task are resampled together for the interval.
        bins: of equal width over [0, 1].

    Raises:
        GroupTooSmall: no scored episode has a report.
        InputError: a report cannot be read, or `bins` is less than 1.
    """
    if bins < 1:
        raise InputError(f"`bins` is {bins}; give 1 or more.")
    scored = [episode for episode in episodes if episode.outcome.scored]
    pairs: list[tuple[float, float]] = []
    excess: dict[int, list[float]] = {}
    for episode in scored:
        report = report_of(episode)
        if report is not None:
            solved = float(episode.outcome.solved)
            pairs.append((report, solved))
            excess.setdefault(episode.key.group, []).append(report - solved)
    if not pairs:
        raise GroupTooSmall(
            f"None of {len(scored)} scored episodes reports its agent's confidence; "
            "use the agent react?confidence=yes, or label them."
        )
    filled = binned(pairs, bins)
    return Calibration(
        n=len(pairs),
        silent=len(scored) - len(pairs),
        brier=brier_score(pairs),
        ece=calibration_error(filled),
        overconfidence=clustered_mean(list(excess.values())) if len(excess) > 1 else None,
        bins=filled,
    )


def brier_score(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the mean squared distance of (predicted probability, outcome), at least one pair."""
    return sum((predicted - outcome) ** 2 for predicted, outcome in pairs) / len(pairs)


def binned(pairs: Sequence[tuple[float, float]], bins: int = 10) -> tuple[Bin, ...]:
    """Return the non-empty bins of (predicted probability, outcome)."""
    by_bin: dict[int, list[tuple[float, float]]] = {}
    for predicted, outcome in pairs:
        by_bin.setdefault(min(bins - 1, int(predicted * bins)), []).append((predicted, outcome))
    return tuple(_bin(index, bins, of) for index, of in sorted(by_bin.items()))


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: |predicted - outcome|, a mean over bins by count."""
    distances = (one.count * abs(one.reported - one.solved) for one in bins)
    return sum(distances) / sum(one.count for one in bins)


def _bin(index: int, bins: int, pairs: Sequence[tuple[float, float]]) -> Bin:
    count = len(pairs)
    return Bin(
        low=index / bins,
        high=(index + 1) / bins,
        count=count,
        reported=sum(report for report, _ in pairs) / count,
        solved=sum(solved for _, solved in pairs) / count,
    )
