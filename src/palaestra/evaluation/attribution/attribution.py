"""An attribution: which turn lost an episode, by which method, and how sure that is."""

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
    UNKNOWN = "unknown"  # the method cannot say


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one method says of one failed episode."""

    method: str
    ending: Ending
    turn: int | None  # index of the step, from 0; None unless `ending` is TURN
    exact: bool  # the method is right wherever its premises hold (see its module)
    reason: str
    agent: str = ""  # the role of the model call that chose the turn; empty where none did
    sources: tuple[int, ...] = ()  # observations that the turn's action was made from; 0: the first
    scores: tuple[float | None, ...] = ()  # per state or per turn, as the method defines them
    actions: int = 0  # done in worlds to find out

    def as_json(self) -> dict[str, Any]:
        """All of it, as a document holds it."""
        return asdict(self)


def role_of(episode: Episode, turn: int) -> str:
    """The role whose call chose that turn; empty where no model did."""
    call = episode.steps[turn].call
    return episode.calls[call].role if call is not None else ""


def verdict(found: Sequence[Attribution]) -> Attribution | None:
    """The one to believe: the first that is exact, else the first that can say; None: none can."""
    able = [one for one in found if one.ending is not Ending.UNKNOWN]
    return next((one for one in able if one.exact), able[0] if able else None)


class Documents(Protocol):
    """What is needed of a run's database."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, document: Any) -> None: ...


def keep(documents: Documents, key: Key, found: Sequence[Attribution]) -> None:
    """Store what methods say of an episode, as the document `explain/KEY`."""
    documents.put(f"explain/{key}", [one.as_json() for one in found])


def kept(documents: Documents, key: Key) -> list[dict[str, Any]]:
    """What was stored of an episode; empty where nothing was."""
    return documents.get(f"explain/{key}") or []
