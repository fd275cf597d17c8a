"""The rules of the grid of boxes: cells and their neighbours, moves, and what a round does.

Each cell has one robot arm, which moves one box of its cell in a round: to a neighbouring cell, or
onto its goal if that is in the cell. A box on its goal is home and takes no room.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

ROOM = 2  # boxes that a cell holds, besides those on their goals
STEPS = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}  # row, column
GOAL = "goal"  # the direction of a move onto a goal
WAIT = "wait"
MOVE = re.compile(
    rf"(?:move )?box ([a-z])(?: to)?(?: the)?(?: its)? ({'|'.join(STEPS)}|{GOAL})", re.IGNORECASE
)


class Move(NamedTuple):
    """What one arm does in a round."""

    box: str
    to: str  # a direction or `GOAL`

    def __str__(self) -> str:
        return f"box {self.box} {self.to}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells in reading order: one row of up to three cells, else two rows."""

    count: int

    def neighbours(self, cell: int) -> dict[str, int]:
        """Return the cells beside a cell, by direction."""
        width = self.count if self.count < 4 else (self.count + 1) // 2
        row, column = divmod(cell, width)
        found = {}
        for direction, (down, right) in STEPS.items():
            beside = (row + down) * width + column + right
            if row + down >= 0 and 0 <= column + right < width and 0 <= beside < self.count:
                found[direction] = beside
        return found

    def paths(self, cell: int) -> dict[int, list[int]]:
        """Return a shortest path to each cell, without its beginning."""
        found: dict[int, list[int]] = {cell: []}
        queue = [cell]
        for here in queue:
            for beside in self.neighbours(here).values():
                if beside not in found:
                    found[beside] = [*found[here], beside]
                    queue.append(beside)
        return found

    def distance(self, one: int, other: int) -> int:
        """Return the number of moves between two cells."""
        return len(self.paths(one)[other])


@dataclass(frozen=True, slots=True)
class State:
    """Where boxes are that are not home, and where they belong; both by box."""

    grid: Grid
    boxes: Mapping[str, int]
    goals: Mapping[str, int]

    def within(self, cell: int) -> list[str]:
        """Return the boxes in a cell, in the order of their names."""
        return sorted(box for box, where in self.boxes.items() if where == cell)

    def target(self, cell: int, move: Move) -> int | None:
        """Return the cell into which a move of that cell's arm puts a box; None for its goal."""
        return None if move.to == GOAL else self.grid.neighbours(cell)[move.to]

    def moves(self, cell: int) -> Iterator[Move]:
        """Yield what the arm of a cell can do besides waiting."""
        for box in self.within(cell):
            if self.goals[box] == cell:
                yield Move(box, GOAL)
            for direction in self.grid.neighbours(cell):
                yield Move(box, direction)

    def collisions(self, moves: Mapping[int, Move]) -> dict[int, str]:
        """Return the cells whose arms collide if all move at once, with the reason.

        Two arms that reach across the same border both fail. If a cell would hold more than
        `ROOM` boxes, all arms that put one there fail. An arm that fails leaves its box, so others
        may fail for it. The result does not depend on the order of the moves.
        """
        to = {cell: self.target(cell, move) for cell, move in moves.items()}
        failed = {
            cell: "two arms reached across one border"
            for cell, beside in to.items()
            if beside is not None and to.get(beside) == cell
        }
        while True:
            room = dict.fromkeys(range(self.grid.count), ROOM)
            for where in self.boxes.values():
                room[where] -= 1
            for cell in to.keys() - failed.keys():
                room[cell] += 1
            arriving: dict[int, list[int]] = {}
            for cell, beside in to.items():
                if beside is not None and cell not in failed:
                    arriving.setdefault(beside, []).append(cell)
            full = [cells for where, cells in arriving.items() if len(cells) > room[where]]
            if not full:
                return failed
            for cells in full:
                failed.update(dict.fromkeys(cells, "there was no room"))

    def after(self, moves: Mapping[int, Move]) -> State:
        """Return the state after a round; arms that collide change nothing."""
        failed = self.collisions(moves)
        boxes, goals = dict(self.boxes), dict(self.goals)
        for cell, move in moves.items():
            if cell in failed:
                continue
            beside = self.target(cell, move)
            if beside is None:
                del boxes[move.box], goals[move.box]
            else:
                boxes[move.box] = beside
        return State(self.grid, boxes, goals)


def parse_move(text: str) -> Move | None:
    """Return the move in a text; None for `wait`.

    Raises:
        ValueError: it is neither.
    """
    plain = text.strip().rstrip(".!")
    if plain.casefold() == WAIT:
        return None
    found = MOVE.fullmatch(plain)
    if found is None:
        raise ValueError(text)
    return Move(found[1].upper(), found[2].lower())
