"""The rollouts of one task laid side by side: rows are states or turns, columns are rollouts.

Where states have keys, equal keys share a row, however the rollouts came there; so one sees
which states several of them met, and what became of each who chose differently there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Move:
    """One action of one rollout."""

    member: int
    turn: int  # from 1
    seen: str  # what was seen before it, on one line
    action: str  # on one line
    state: str | None  # key of the state before it
    valid: bool
    reward: float
    advantage: float | None


@dataclass(frozen=True, slots=True)
class Choice:
    """What some rollouts did in the same place."""

    action: str
    members: tuple[int, ...]
    result: float | None  # mean return of those rollouts


@dataclass(frozen=True, slots=True)
class Row:
    """One state or one turn."""

    name: str  # what was seen there, or the number of the turn
    first: int  # the earliest turn in which someone was there
    cells: Mapping[int, tuple[Move, ...]]  # by member; who was not there has none
    choices: tuple[Choice, ...]  # the most frequent first

    @property
    def parts(self) -> bool:
        """Whether the rollouts that were here went on differently."""
        return len(self.choices) > 1 and len(self.cells) > 1


def aligned(
    moves: Sequence[Move], returns: Mapping[int, float], *, by_state: bool
) -> tuple[Row, ...]:
    """The rows, in the order in which they were first reached.

    Args:
        moves: of all rollouts; without states they are aligned by turn.
        returns: of each rollout that has one.
        by_state: rows are states, else turns.
    """
    places: dict[str | int, list[Move]] = {}
    for move in sorted(moves, key=lambda m: (m.turn, m.member)):
        place = move.state if by_state and move.state is not None else move.turn
        places.setdefault(place, []).append(move)
    rows = [_row(place, there, returns) for place, there in places.items()]
    return tuple(sorted(rows, key=lambda row: (row.first, -len(row.cells))))


def partings(rows: Sequence[Row]) -> list[Row]:
    """The rows where rollouts part, those whose choices ended most differently first.

    Of rows that differ as much, or whose returns are not known, the earlier first.
    """
    return sorted((row for row in rows if row.parts), key=lambda row: (-_spread(row), row.first))


def _spread(row: Row) -> float:
    results = [choice.result for choice in row.choices if choice.result is not None]
    return max(results) - min(results) if len(results) > 1 else 0.0


def _row(place: str | int, there: Sequence[Move], returns: Mapping[int, float]) -> Row:
    cells: dict[int, list[Move]] = {}
    chosen: dict[str, dict[int, None]] = {}
    for move in there:
        cells.setdefault(move.member, []).append(move)
        chosen.setdefault(move.action, {})[move.member] = None
    choices = []
    for action, members in chosen.items():
        known = [returns[member] for member in members if member in returns]
        choices.append(Choice(action, tuple(members), fmean(known) if known else None))
    return Row(
        name=there[0].seen if isinstance(place, str) else f"turn {place}",
        first=there[0].turn,
        cells={member: tuple(of) for member, of in cells.items()},
        choices=tuple(sorted(choices, key=lambda choice: -len(choice.members))),
    )
