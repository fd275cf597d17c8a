"""Rates of a detector: how many injections of each threat class it finds, and false alarms."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.evaluation.detectors.injection_detectors import FLAGGED, InjectionDetector
from palaestra.evaluation.detectors.page_segments import Segment
from palaestra.evaluation.statistics.intervals import Interval, wilson


def detection_rates(
    detector: InjectionDetector, segments: Sequence[Segment]
) -> dict[str, Interval]:
    """Return the share of flagged segments by threat class; that of "" are false positives."""
    flagged: dict[str, list[bool]] = {}
    rated = detector.suspicion([one.text for one in segments])
    for segment, suspicion in zip(segments, rated, strict=True):
        flagged.setdefault(segment.threat, []).append(suspicion >= FLAGGED)
    return {threat: wilson(sum(found), len(found)) for threat, found in flagged.items()}
