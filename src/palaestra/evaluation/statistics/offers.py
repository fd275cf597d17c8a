"""How well offers of help are timed: precision, recall, F1 and false alarms (ProactiveBench).

Steps of `proactive/…` say in their `info` of each decision whether help was wanted (`wanted`) and
what became of an offer (`offer`). After Lu et al. 2024, an offer that is accepted is a true
positive, one that is declined a false positive, silence where help is wanted a false negative, and
silence elsewhere a true negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.core.episode import Episode
from palaestra.evaluation.statistics.intervals import Interval, wilson

ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class OfferScores:
    """Scores over some decisions; None where nothing could show it."""

    decisions: int
    precision: Interval | None  # accepted, of the offers
    recall: Interval | None  # accepted, of the decisions at which help was wanted
    false_alarms: Interval | None  # offers, of the decisions at which none was wanted
    f1: float | None  # the harmonic mean of precision and recall


def offer_scores(steps: Iterable[Mapping[str, Any]]) -> OfferScores:
    """Return the scores over the decisions among steps, of which each has its `info`."""
    decisions = [(bool(i["wanted"]), i.get("offer")) for i in steps if "wanted" in i]
    offers = [offer for _, offer in decisions if offer is not None]
    needed = [offer for wanted, offer in decisions if wanted]
    idle = [offer for wanted, offer in decisions if not wanted]
    hits = offers.count(ACCEPTED)
    sides = len(offers) + len(needed)
    return OfferScores(
        len(decisions),
        wilson(hits, len(offers)) if offers else None,
        wilson(hits, len(needed)) if needed else None,
        wilson(sum(offer is not None for offer in idle), len(idle)) if idle else None,
        2 * hits / sides if sides else None,
    )


def steps_of(episodes: Iterable[Episode]) -> list[Mapping[str, Any]]:
    """Return the `info` of all steps of the episodes that have a valid result."""
    scored = (episode for episode in episodes if episode.outcome.scored)
    return [step.transition.info for episode in scored for step in episode.steps]
