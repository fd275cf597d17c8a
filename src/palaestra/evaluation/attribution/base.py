"""An attribution: which turn lost an episode, by which method, and how certain that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

from palaestra.core.episode import Episode, Key


class Ending(StrEnum):
    TURN = "turn"  # one turn lost it
    START = "start"  # it was lost before the first turn
    GAVE_UP = "gave up"  # it could still be solved when it ended
    UNKNOWN = "unknown"  # the method cannot decide


@dataclass(frozen=True, slots=True)
class Attribution:
    """One method's answer to which turn lost a failed episode."""

    method: str
    ending: Ending
    turn: int | None  # index of the step, from 0; None unless `ending` is TURN
    exact: bool  # the method is correct if its assumptions hold (see its module)
    reason: str
    agent: str = ""  # the role of the model call that chose the turn; empty if none did
    sources: tuple[int, ...] = ()  # observations that the turn's action used; 0: the first
    scores: tuple[float | None, ...] = ()  # per state or per turn, as the method defines them
    actions: int = 0  # environment actions that the method took

    def as_json(self) -> dict[str, Any]:
        """Return all fields as a JSON document."""
        return asdict(self)


def role_of(episode: Episode, turn: int) -> str:
    """Return the role whose call chose that turn; empty if no model did."""
    call = episode.steps[turn].call
    return episode.calls[call].role if call is not None else ""


def verdict(found: Sequence[Attribution]) -> Attribution | None:
    """Return the first exact attribution, else the first known one; None if all are unknown."""
    known = [one for one in found if one.ending is not Ending.UNKNOWN]
    return next((one for one in known if one.exact), known[0] if known else None)


class Documents(Protocol):
    """The part of a run's database that attributions need."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, document: Any) -> None: ...


def store_attributions(documents: Documents, key: Key, found: Sequence[Attribution]) -> None:
    """Store the attributions of an episode as the document `explain/KEY`."""
    documents.put(f"explain/{key}", [one.as_json() for one in found])


def stored_attributions(documents: Documents, key: Key) -> list[dict[str, Any]]:
    """Return the stored attributions of an episode; empty if there are none."""
    return documents.get(f"explain/{key}") or []
