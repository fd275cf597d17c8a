"""An expert for those MiniHack levels that looking, walking and one deed solve.

It reads what the agent reads, remembers the map, and walks to the staircase, to the thing to be
used, or else to the nearest place from which more can be seen. It is asked move by move, and tried
out in a world of its own (see `MiniHack.oracle`), so what it returns is a way that was gone.
Levels with fights, traps, lava or hidden doors are beyond it. It solves all the tasks of its levels
but one in a hundred of Levitate-Potion, where a ghost comes out of the bottle instead.
"""

from __future__ import annotations

import re
from collections import deque

from palaestra.environments.grid.nethack_map import DOORS, STEPS, Cell, walkable
from palaestra.environments.grid.nethack_text import Screen

STAIRS = "staircase down"
WALKS = re.compile(
    r"Room(-Random|-Dark)?-\d+x\d+|MazeWalk-.*|KeyRoom-.*|Labyrinth-.*|ClosedDoor"
    r"|LockedDoor(-Fixed)?|MultiRoom-N\d+(-OpenDoor|-Locked)?"
)
DEEDS = {  # the beginning of the name: what is used, and how
    "Eat": ("apple", "eat"),
    "Pray": ("altar", "pray"),
    "Sink": ("sink", "quaff"),
    "Wield": ("dagger", "wield"),
    "Wear": ("robe", "wear"),
    "PutOn": ("amulet", "puton"),
    "Zap": ("wand", "zap"),
    "Read": ("scroll", "read"),
    "Levitate-Boots": ("boots", "wear"),
    "Levitate-Ring": ("ring", "puton"),
    "Levitate-Potion": ("potion", "quaff"),
    "KeyRoom": ("key", "apply"),
}
USED_IN_PLACE = {"apple", "altar", "sink"}
TRIES = 8  # at a move that changes nothing


def knows(name: str) -> bool:
    """Whether there is an expert for the level of that name."""
    return bool(WALKS.fullmatch(name)) or re.sub("-(Fixed|Full|Restricted)$", "", name) in DEEDS


class Expert:
    """What to do next in one level, from its screens in turn."""

    def __init__(self, name: str) -> None:
        heads = (head for head in DEEDS if name.startswith(head))
        self._thing, self._deed = DEEDS.get(next(heads, ""), ("", ""))
        self._kicks = "Locked" in name
        self._map: dict[Cell, str] = {}
        self._stood: set[Cell] = set()
        self._failed: dict[tuple[Cell, Cell, str], int] = {}  # from, to, what was there: how often
        self._tried: tuple[Cell, Cell] | None = None  # the last move

    def next(self, screen: Screen) -> str:
        """The next action; "" if there is nothing more to try."""
        if screen.asking:
            return self._answer(screen)
        self._learn(screen)
        if STAIRS in self._map.values() and (step := self._towards(screen, self._stairs())):
            return step
        if self._kicks and (step := self._at_a_door(screen, "kick")):
            return step
        if self._thing and (deed := self._use(screen)):
            return deed
        return self._towards(screen, self._unseen())

    # ── details ──────────────────────────────────────────────────────────────

    def _answer(self, screen: Screen) -> str:
        if screen.asks_direction:
            (x, y), doors = screen.at, self._doors()
            return next((way for way, (a, d) in STEPS.items() if (x + a, y + d) in doors), "north")
        if screen.message.startswith("What do you want to"):
            return self._thing if self._held(screen) else "esc"
        if "ring-finger" in screen.message:
            return "left"
        return "y" if self._deed else "esc"

    def _learn(self, screen: Screen) -> None:
        """Take in a screen; a move that led nowhere has failed."""
        here = screen.at
        seen = {cell: kind for cell, kind in screen.cells.items() if cell != here}
        if self._tried and self._tried[0] == here:
            move = (*self._tried, self._map.get(self._tried[1], ""))
            tries = TRIES if "locked" in screen.message else 1
            self._failed[move] = self._failed.get(move, 0) + tries
        self._tried = None
        self._map |= seen
        self._map.setdefault(here, "floor of a room")
        self._stood.add(here)

    def _held(self, screen: Screen) -> bool:
        return any(self._thing in name for name in screen.items.values())

    def _use(self, screen: Screen) -> str:
        """Fetch the thing and do the deed; "" if that is not to be done here and now."""
        held = self._held(screen)
        if self._thing == "key" and held:
            return self._at_a_door(screen, self._deed)
        if held:
            return self._deed
        lying = {c for c, kind in screen.cells.items() if self._thing in kind and c != screen.at}
        if lying:
            return self._towards(screen, lying)
        if self._thing in USED_IN_PLACE:
            return self._deed
        return "" if self._thing == "key" and not self._on_it(screen) else "pickup"

    def _on_it(self, screen: Screen) -> bool:
        here = screen.message if screen.message.startswith("You see here") else ""
        return self._thing in (self._map.get(screen.at) or "") + here

    def _at_a_door(self, screen: Screen, deed: str) -> str:
        """The deed, in front of a closed door, or a step to where one is in front of it."""
        straight = [step for step in STEPS.values() if 0 in step]
        beside = {(x + a, y + d) for x, y in self._doors() for a, d in straight}
        doorsteps = set(filter(self._open, beside))
        return deed if screen.at in doorsteps else self._towards(screen, doorsteps)

    def _doors(self) -> set[Cell]:
        return {cell for cell, kind in self._map.items() if kind == "closed door"}

    def _open(self, cell: Cell) -> bool:
        return walkable(self._map.get(cell, "")) or cell in self._stood

    def _stairs(self) -> set[Cell]:
        return {cell for cell, kind in self._map.items() if kind == STAIRS}

    def _unseen(self) -> set[Cell]:
        """Open cells where we never stood, and beside which something is unknown."""
        return {
            (x, y)
            for (x, y), kind in self._map.items()
            if (walkable(kind) or kind == "closed door")
            and (x, y) not in self._stood
            and any((x + a, y + d) not in self._map for a, d in STEPS.values())
        }

    def _towards(self, screen: Screen, goals: set[Cell]) -> str:
        """The first step of a shortest way to one of the goals; "" without any."""
        start = screen.at
        first: dict[Cell, str] = {start: ""}
        queue = deque([start])
        while queue:
            cell = queue.popleft()
            if cell in goals and cell != start:
                x, y = STEPS[first[cell]]
                self._tried = (start, (start[0] + x, start[1] + y))
                return first[cell]
            for way, (a, d) in STEPS.items():
                to = (cell[0] + a, cell[1] + d)
                if to not in first and self._passes(cell, to, goals):
                    first[to] = first[cell] or way
                    queue.append(to)
        return ""

    def _passes(self, cell: Cell, to: Cell, goals: set[Cell]) -> bool:
        kind = self._map.get(to, "")
        if not (self._open(to) or kind == "closed door" or to in goals):
            return False
        if self._failed.get((cell, to, kind), 0) >= TRIES:
            return False
        if 0 in (to[0] - cell[0], to[1] - cell[1]):
            return True
        corners = ((cell[0], to[1]), (to[0], cell[1]))
        doors = {self._map.get(cell, ""), kind} & (DOORS | {"closed door"})
        return not doors and any(map(self._open, corners))
