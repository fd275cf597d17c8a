"""The turn that lost an episode: as `palaestra explain --save` found it, else guessed.

Every answer says its ground. What lost an episode is found by living on from its turns
(attribution); from the record alone it can only be guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.evaluation.attribution.attribution import Ending
from palaestra.store.ranges import StepFacts

GROUNDS = {
    "fall": "the turn of the largest fall of progress",
    "invalid": "the first action that the environment did not understand (progress never fell)",
    "last": "the last turn (progress never fell, and every action was understood)",
    "explained": "found by living on from every turn, or by what each turn was made from",
}
"""By what a turn was chosen, and how a page says it."""


@dataclass(frozen=True, slots=True)
class Losing:
    """A turn, from 1, and the name of its ground."""

    turn: int
    ground: str


def explained_turn(found: Sequence[Mapping[str, Any]]) -> Losing | None:
    """The turn that the first, most certain stored attribution with a turn names."""
    for one in found:
        if one["ending"] == Ending.TURN and one["turn"] is not None:
            return Losing(int(one["turn"]) + 1, "explained")
    return None


def reason_of(found: Sequence[Mapping[str, Any]], turn: int) -> str | None:
    """What the attribution behind `explained_turn` says of that turn."""
    for one in found:
        if one["ending"] == Ending.TURN and one["turn"] == turn - 1:
            return f"{one['method']}: {one['reason']}"
    return None


def losing_turn(steps: Iterable[StepFacts], final: float | None) -> Losing | None:
    """The turn that most likely lost the episode; None without any.

    Args:
        steps: all steps, in order.
        final: the progress after the last one, where the environment declares it.
    """
    worst, fall, invalid, last = 0, 0.0, 0, 0
    before: float | None = None
    for step in steps:
        if before is not None and step.progress is not None and before - step.progress > fall:
            worst, fall = last, before - step.progress
        last, before = step.step + 1, step.progress
        invalid = invalid or (0 if step.valid else last)
    if before is not None and final is not None and before - final > fall:
        worst = last
    if worst:
        return Losing(worst, "fall")
    if invalid:
        return Losing(invalid, "invalid")
    return Losing(last, "last") if last else None
