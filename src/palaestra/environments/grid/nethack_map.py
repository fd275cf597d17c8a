"""What the screen of NetHack says of a level and of the bag, read anew only where it has changed.

The game describes each of its 21 x 79 places in up to 80 letters, at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
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
NUMBER = 8  # letters that are compared at once
UNTOLD = GROUND | {"wall", "stone"}
OPEN = GROUND | DOORS | {"cloud", "ice", "lowered drawbridge"}


def walkable(kind: str) -> bool:
    """Whether a cell that is described like this is open ground, with nothing on it."""
    return kind in OPEN or kind.startswith(("staircase", "ladder"))


@lru_cache(4096)  # the same few again and again; but a player can name things
def sets_of(kind: str) -> tuple[str, ...]:
    """Which sets of `Cells` a cell belongs to that is described like this; none if by nothing."""
    if not kind:
        return ()
    free = walkable(kind)
    belongs = {
        "walkable": free,
        "aslant": free and kind not in DOORS,
        "corridors": kind in CORRIDORS,
        "things": kind not in UNTOLD,
    }
    return tuple(name for name, it_does in belongs.items() if it_does)


class Cells(dict[Cell, str]):
    """What is seen or remembered where; nothing where nothing is known."""

    def __init__(self, known: Mapping[Cell, str] | None = None) -> None:
        super().__init__()
        self.walkable: set[Cell] = set()
        self.aslant: set[Cell] = set()  # what can be walked in all eight directions
        self.corridors: set[Cell] = set()
        self.things: set[Cell] = set()  # what is worth telling
        self.ends: set[Cell] = set()  # as much of a corridor as is known
        self.told: dict[Cell, str] = {}  # all this in words, by where one stands; until it changes
        for cell, kind in (known or {}).items():
            self[cell] = kind

    def __setitem__(self, cell: Cell, kind: str) -> None:
        self._sort(cell, sets_of(self.get(cell, "")), sets_of(kind))
        super().__setitem__(cell, kind)

    def __delitem__(self, cell: Cell) -> None:
        self._sort(cell, sets_of(self.get(cell, "")), ())
        super().__delitem__(cell)

    def _sort(self, cell: Cell, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Out of the sets where a cell belonged, into those where it belongs."""
        self.told.clear()
        if now == before:
            return
        for name in before:
            getattr(self, name).remove(cell)
        for name in now:
            getattr(self, name).add(cell)
        self.ends.discard(cell)
        for corridor in self.corridors & around(cell):
            last = len(self.walkable & around(corridor)) <= 2  # itself, and where one comes from
            (self.ends.add if last else self.ends.discard)(corridor)


class Items(dict[str, str]):
    """What is carried, by its letter."""

    @cached_property
    def told(self) -> str:
        """All of it, in words."""
        things = [f"{letter} - {name}" for letter, name in self.items()]
        return f"Inventory: {'; '.join(things) or 'nothing'}."


class Reader:
    """Reads one game's screens, one after the other."""

    def __init__(self) -> None:
        self._cells, self._items = Cells(), Items()
        self._screen: Any = None  # the game's descriptions: each screen in the same memory
        self._places: Any = None  # the same, a row for each place
        self._now: Any = None  # the same, 8 letters a number
        self._before: Any = None  # what they were when read last
        self._differs: Any = None  # which of them do; kept, since making one takes longer
        self._bag = b""

    def cells(self, game: Game) -> Cells:
        """The present ones; the next call changes them."""
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
        """The present ones."""
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
        """Read from this memory from now on."""
        self._screen = screen
        self._places = screen.reshape(-1, screen.shape[-1])
        self._now = self._places.view(np.uint64).reshape(-1)
        if self._before is None:
            self._before = np.zeros_like(self._now)
            self._differs = np.zeros(self._now.shape, dtype=bool)


@cache
def around(cell: Cell) -> frozenset[Cell]:
    """The cell, and those beside it."""
    x, y = cell
    return frozenset({cell, *((x + across, y + down) for across, down in STEPS.values())})


def text(codes: Any) -> str:
    """Letters up to the first zero."""
    return str(codes.tobytes().split(b"\0", 1)[0].decode("latin-1"))
