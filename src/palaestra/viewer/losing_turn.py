"""The turn that lost an episode: from `palaestra explain --save`, else guessed.

Every answer states its ground. Attribution finds the losing turn with rollouts from each turn; from
the record alone it can only be guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.evaluation.attribution.base import Ending
from palaestra.store.ranges import StepFacts

GROUNDS = {
    "fall": "the turn with the largest drop of progress",
    "invalid": "the first invalid action (progress never dropped)",
    "last": "the last turn (progress never dropped, and every action was valid)",
    "explained": "found by rollouts from every turn, or by tracing the words of each action",
}
"""The grounds for choosing a turn, with their text on pages."""


@dataclass(frozen=True, slots=True)
class Losing:
    """A losing turn, from 1, and the name of its ground."""

    turn: int
    ground: str


def explained_turn(found: Sequence[Mapping[str, Any]]) -> Losing | None:
    """Return the turn of the first (most certain) stored attribution that names one."""
    for one in found:
        if one["ending"] == Ending.TURN and one["turn"] is not None:
            return Losing(int(one["turn"]) + 1, "explained")
    return None


def reason_of(found: Sequence[Mapping[str, Any]], turn: int) -> str | None:
    """Return the reason of the attribution behind `explained_turn` for that turn."""
    for one in found:
        if one["ending"] == Ending.TURN and one["turn"] == turn - 1:
            return f"{one['method']}: {one['reason']}"
    return None


def losing_turn(steps: Iterable[StepFacts], final: float | None) -> Losing | None:
    """Guess the turn that lost the episode; None without any turn.

    Args:
        steps: all steps, in order.
        final: the progress after the last one, if the environment declares it.
    """
    worst, drop, invalid, last = 0, 0.0, 0, 0
    before: float | None = None
    for step in steps:
        if before is not None and step.progress is not None and before - step.progress > drop:
            worst, drop = last, before - step.progress
        last, before = step.step + 1, step.progress
        invalid = invalid or (0 if step.valid else last)
    if before is not None and final is not None and before - final > drop:
        worst = last
    if worst:
        return Losing(worst, "fall")
    if invalid:
        return Losing(invalid, "invalid")
    return Losing(last, "last") if last else None
