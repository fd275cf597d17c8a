"""The map and the inventory read from NetHack's screen, incrementally.

At every step the game describes each of its 21 x 79 cells in up to 80 letters, so only changed
cells are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from palaestra.environments.families.nethack.game import Game

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
DOORS = {"doorway", "open door", "broken door"}  # cannot be passed diagonally
NUMBER = 8  # letters that are compared at once
PLAIN = GROUND | {"wall", "stone"}  # cells that are not worth mentioning
OPEN = GROUND | DOORS | {"cloud", "ice", "lowered drawbridge"}


def walkable(kind: str) -> bool:
    """Return whether a description is that of open ground with nothing on it."""
    return kind in OPEN or kind.startswith(("staircase", "ladder"))


@lru_cache(4096)  # few descriptions recur; the bound is for names that a player gives to things
def sets_of(kind: str) -> tuple[str, ...]:
    """Return the sets of `Cells` to which a cell of this description belongs; () for ""."""
    if not kind:
        return ()
    free = walkable(kind)
    belongs = {
        "walkable": free,
        "diagonal": free and kind not in DOORS,
        "corridors": kind in CORRIDORS,
        "things": kind not in PLAIN,
    }
    return tuple(name for name, member in belongs.items() if member)


class Cells(dict[Cell, str]):
    """The descriptions of all seen or remembered cells; unknown cells have no entry."""

    def __init__(self, known: Mapping[Cell, str] | None = None) -> None:
        super().__init__()
        self.walkable: set[Cell] = set()
        self.diagonal: set[Cell] = set()  # walkable in all eight directions
        self.corridors: set[Cell] = set()
        self.things: set[Cell] = set()  # cells worth mentioning
        self.ends: set[Cell] = set()  # ends of the known part of corridors
        self.texts: dict[Cell, str] = {}  # cache of the rendered map by the agent's position
        for cell, kind in (known or {}).items():
            self[cell] = kind

    def __setitem__(self, cell: Cell, kind: str) -> None:
        self._sort(cell, sets_of(self.get(cell, "")), sets_of(kind))
        super().__setitem__(cell, kind)

    def __delitem__(self, cell: Cell) -> None:
        self._sort(cell, sets_of(self.get(cell, "")), ())
        super().__delitem__(cell)

    def _sort(self, cell: Cell, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Move a cell from its former sets into its present ones."""
        self.texts.clear()
        if now == before:
            return
        for name in before:
            getattr(self, name).remove(cell)
        for name in now:
            getattr(self, name).add(cell)
        self.ends.discard(cell)
        for corridor in self.corridors & around(cell):
            last = len(self.walkable & around(corridor)) <= 2  # itself and one neighbour
            (self.ends.add if last else self.ends.discard)(corridor)


class Items(dict[str, str]):
    """The inventory: names of items by letter."""

    @cached_property
    def text(self) -> str:
        """The inventory as one line of text."""
        things = [f"{letter} - {name}" for letter, name in self.items()]
        return f"Inventory: {'; '.join(things) or 'nothing'}."


class Reader:
    """A reader of one game's successive screens."""

    def __init__(self) -> None:
        self._cells, self._items = Cells(), Items()
        self._screen: Any = None  # the game's descriptions; every screen uses the same memory
        self._places: Any = None  # a view of it with a row per cell
        self._now: Any = None  # a view of it with 8 letters per number
        self._before: Any = None  # copy of `_now` at the last reading
        self._differs: Any = None  # preallocated result of their comparison
        self._bag = b""

    def cells(self, game: Game) -> Cells:
        """Return the current cells; the next call changes them in place."""
        if (screen := game.see("screen_descriptions")) is not self._screen:
            self._show(screen)
        (changed,) = np.not_equal(self._now, self._before, out=self._differs).nonzero()
        if not changed.size:
            return self._cells
        self._before[changed] = self._now[changed]
        _, columns, letters = screen.shape
        for place in {number // (letters // NUMBER) for number in changed.tolist()}:
            row, column = divmod(place, columns)
            kind = text(self._places[place])
            if kind:
                self._cells[column, row] = kind
            elif (column, row) in self._cells:
                del self._cells[column, row]
        return self._cells

    def items(self, game: Game) -> Items:
        """Return the current inventory."""
        letters, things = game.see("inv_letters"), game.see("inv_strs")
        bag = letters.tobytes() + things.tobytes()
        if bag != self._bag:
            self._bag = bag
            self._items = Items(
                (chr(letter), text(thing).strip())
                for letter, thing in zip(letters.tolist(), things, strict=True)
                if letter
            )
        return self._items

    def _show(self, screen: Any) -> None:
        """Read from this memory from now on and set up its views."""
        self._screen = screen
        self._places = screen.reshape(-1, screen.shape[-1])
        self._now = self._places.view(np.uint64).reshape(-1)
        if self._before is None:
            self._before = np.zeros_like(self._now)
            self._differs = np.zeros(self._now.shape, dtype=bool)


@cache
def around(cell: Cell) -> frozenset[Cell]:
    """Return the cell and its eight neighbours."""
    x, y = cell
    return frozenset({cell, *((x + across, y + down) for across, down in STEPS.values())})


def text(codes: Any) -> str:
    """Decode letters up to the first zero."""
    return str(codes.tobytes().split(b"\0", 1)[0].decode("latin-1"))
