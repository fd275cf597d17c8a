"""Alignment of the rollouts of one task: rows are states or turns, columns are rollouts.

If states have keys, equal keys share a row, whatever path led there. So a row shows which
rollouts reached a state, and the results of their different choices there.
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
    seen: str  # the observation before it, on one line
    action: str  # on one line
    state: str | None  # key of the state before it
    valid: bool
    reward: float
    advantage: float | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The rollouts that took the same action in one row."""

    action: str
    members: tuple[int, ...]
    result: float | None  # mean return of those rollouts


@dataclass(frozen=True, slots=True)
class Row:
    """One state or one turn."""

    name: str  # the observation there, or the number of the turn
    first: int  # the earliest turn of any rollout there
    cells: Mapping[int, tuple[Move, ...]]  # by member; members that were not there are missing
    choices: tuple[Choice, ...]  # the most frequent first

    @property
    def diverges(self) -> bool:
        """Whether the rollouts in this row chose different actions."""
        return len(self.choices) > 1 and len(self.cells) > 1


def aligned(
    moves: Sequence[Move], returns: Mapping[int, float], *, by_state: bool
) -> tuple[Row, ...]:
    """Align moves to rows, in the order in which rows were first reached.

    Args:
        moves: of all rollouts; without states they are aligned by turn.
        returns: of each rollout that has one.
        by_state: rows are states, else turns.
    """
    by_row: dict[str | int, list[Move]] = {}
    for move in sorted(moves, key=lambda m: (m.turn, m.member)):
        key = move.state if by_state and move.state is not None else move.turn
        by_row.setdefault(key, []).append(move)
    rows = [_row(key, of, returns) for key, of in by_row.items()]
    return tuple(sorted(rows, key=lambda row: (row.first, -len(row.cells))))


def divergences(rows: Sequence[Row]) -> list[Row]:
    """Return the rows where rollouts diverge, those with the largest difference of returns first.

    Among rows with equal or unknown differences, the earlier come first.
    """
    diverging = (row for row in rows if row.diverges)
    return sorted(diverging, key=lambda row: (-_spread(row), row.first))


def _spread(row: Row) -> float:
    results = [choice.result for choice in row.choices if choice.result is not None]
    return max(results) - min(results) if len(results) > 1 else 0.0


def _row(key: str | int, moves: Sequence[Move], returns: Mapping[int, float]) -> Row:
    cells: dict[int, list[Move]] = {}
    chosen: dict[str, dict[int, None]] = {}
    for move in moves:
        cells.setdefault(move.member, []).append(move)
        chosen.setdefault(move.action, {})[move.member] = None
    choices = []
    for action, members in chosen.items():
        known = [returns[member] for member in members if member in returns]
        choices.append(Choice(action, tuple(members), fmean(known) if known else None))
    return Row(
        name=moves[0].seen if isinstance(key, str) else f"turn {key}",
        first=moves[0].turn,
        cells={member: tuple(of) for member, of in cells.items()},
        choices=tuple(sorted(choices, key=lambda choice: -len(choice.members))),
    )
