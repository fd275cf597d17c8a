"""What the screen of NetHack says of a level and of the bag, read anew only where it has changed.

The game describes each of its 21 x 79 places in up to 80 letters, at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.environments.grid.nethack_game import Game

Cell = tuple[int, int]  # column, row

STEPS: dict[str, Cell] = {
    "north": (0, -1),
    "northeast": (1, -1),
    "east": (1, 0),
    "southeast": (1, 1),
    "south": (0, 1),
    "southwest": (-1, 1),
    "west": (-1, 0),
    "northwest": (-1, -1),
}
CORRIDORS = {"corridor", "lit corridor"}
GROUND = CORRIDORS | {"floor of a room", "dark part of a room"}
DOORS = {"doorway", "open door", "broken door"}  # not to be passed aslant
UNTOLD = GROUND | {"wall", "stone"}
OPEN = GROUND | DOORS | {"cloud", "ice", "lowered drawbridge"}


def walkable(kind: str) -> bool:
    """Whether a cell that is described like this is open ground, with nothing on it."""
    return kind in OPEN or kind.startswith(("staircase", "ladder"))


class Cells(dict[Cell, str]):
    """What is seen or remembered where; nothing where nothing is known."""

    def __init__(self, known: Mapping[Cell, str] | None = None) -> None:
        super().__init__()
        self.walkable: set[Cell] = set()
        self.doors: set[Cell] = set()
        self.corridors: set[Cell] = set()
        self.things: set[Cell] = set()  # what is worth telling
        for cell, kind in (known or {}).items():
            self[cell] = kind

    def __setitem__(self, cell: Cell, kind: str) -> None:
        super().__setitem__(cell, kind)
        for cells, belongs in (
            (self.walkable, walkable(kind)),
            (self.doors, kind in DOORS),
            (self.corridors, kind in CORRIDORS),
            (self.things, kind not in UNTOLD),
        ):
            (cells.add if belongs else cells.discard)(cell)

    def __delitem__(self, cell: Cell) -> None:
        super().__delitem__(cell)
        for cells in (self.walkable, self.doors, self.corridors, self.things):
            cells.discard(cell)


class Reader:
    """Reads one game's screens, one after the other."""

    def __init__(self) -> None:
        self._cells, self._items = Cells(), dict[str, str]()
        self._descriptions: Any = None  # as read last, 8 letters a number
        self._bag = b""

    def cells(self, game: Game) -> Cells:
        """The present ones; the next call changes them."""
        descriptions = np.ascontiguousarray(game.see("screen_descriptions"))
        _, columns, letters = descriptions.shape
        now = descriptions.view(np.uint64).ravel()
        if self._descriptions is None:
            self._descriptions = np.zeros_like(now)
        changed = np.flatnonzero(now != self._descriptions)
        self._descriptions[changed] = now[changed]
        for place in {number // (letters // now.itemsize) for number in changed.tolist()}:
            row, column = divmod(place, columns)
            kind = text(descriptions[row, column])
            if kind:
                self._cells[column, row] = kind
            elif (column, row) in self._cells:
                del self._cells[column, row]
        return self._cells

    def items(self, game: Game) -> dict[str, str]:
        """Letter -> thing carried."""
        letters, things = game.see("inv_letters"), game.see("inv_strs")
        bag = letters.tobytes() + things.tobytes()
        if bag != self._bag:
            self._bag = bag
            self._items = {
                chr(letter): text(thing).strip()
                for letter, thing in zip(letters.tolist(), things, strict=True)
                if letter
            }
        return self._items


def text(codes: Any) -> str:
    """Letters up to the first zero."""
    return str(codes.tobytes().split(b"\0", 1)[0].decode("latin-1"))
