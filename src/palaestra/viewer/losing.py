"""The turn that lost an episode, guessed from what is recorded; every guess says its ground.

A guess only: what an episode truly lost is found by living on from its turns (attribution).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palaestra.store.ranges import StepFacts

GROUNDS = {
    "fall": "the turn of the largest fall of progress",
    "invalid": "the first action that the environment did not understand (progress never fell)",
    "last": "the last turn (progress never fell, and every action was understood)",
}
"""By what a turn was chosen, and how a page says it."""


@dataclass(frozen=True, slots=True)
class Losing:
    """A turn, from 1, and the name of its ground."""

    turn: int
    ground: str


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
