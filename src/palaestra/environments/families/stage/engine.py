"""The engine of a 2-D stage: which cells are free, and from where a camera has which shot.

The stage has columns A to F and rows 1 to 4, furniture on some cells, and marks where actors stand.
A camera sees along rows, columns and diagonals, up to the first piece of furniture or actor. A shot
is close from one cell away, medium from two, and wide from three or more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

COLUMNS, ROWS = "ABCDEF", "1234"
CELLS = tuple(column + row for row in ROWS for column in COLUMNS)


@dataclass(frozen=True, slots=True)
class Shot:
    """A shot that a script asks for."""

    size: str  # close, medium or wide
    actor: str

    def __str__(self) -> str:
        return f"a {self.size} shot of {self.actor}"


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, and where the script wants the actors."""

    furniture: Mapping[str, str]  # by cell
    marks: Mapping[str, str]  # cell by actor

    def misplaced(self, actor: str, cell: str) -> str | None:
        """Return why an actor may not stand on a cell; None: it may."""
        if cell not in CELLS:
            return f"{cell} is no cell"
        if cell in self.furniture:
            return f"the {self.furniture[cell]} stands on {cell}"
        if cell != self.marks[actor]:
            return f"{cell} is not the mark of {actor}"
        return None

    def illegal(self, shot: Shot, cell: str) -> str | None:
        """Return why a camera on a cell does not have a shot; None: it has."""
        if cell not in CELLS:
            return f"{cell} is no cell"
        taken = {*self.furniture, *self.marks.values()}
        if cell in taken:
            return f"{cell} is taken"
        subject = self.marks[shot.actor]
        between = line(cell, subject)
        if between is None:
            return f"{subject} is in no line with {cell}"
        if blocked := sorted(taken & set(between)):
            return f"{blocked[0]} is between {cell} and {subject}"
        size = size_of(len(between) + 1)
        return None if size == shot.size else f"the shot from {cell} is {size}, not {shot.size}"

    def cameras(self, shot: Shot) -> list[str]:
        """Return the cells from which a camera has a shot."""
        return [cell for cell in CELLS if self.illegal(shot, cell) is None]


def line(start: str, end: str) -> Collection[str] | None:
    """Return the cells between two on a row, a column or a diagonal; None if they are on none."""
    (x, y), (to_x, to_y) = _place(start), _place(end)
    across, down = to_x - x, to_y - y
    steps = max(abs(across), abs(down))
    if steps == 0 or not (across == 0 or down == 0 or abs(across) == abs(down)):
        return None
    return [COLUMNS[x + across // steps * n] + ROWS[y + down // steps * n] for n in range(1, steps)]


def size_of(distance: int) -> str:
    """Return the size of a shot from so many cells away, from 1."""
    return {1: "close", 2: "medium"}.get(distance, "wide")


def _place(cell: str) -> tuple[int, int]:
    return COLUMNS.index(cell[0]), ROWS.index(cell[1])
