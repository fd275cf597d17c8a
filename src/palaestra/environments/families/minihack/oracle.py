"""An expert for MiniHack levels that need exploring, walking and the use of one item.

It sees the agent's observations, remembers the map, and walks to the staircase, to the item, or to
the nearest cell from which it can see more. It proposes one action at a time and is run in a copy
of the environment (see `MiniHack.oracle`), so every plan it returns has been executed. It does not
handle fights, traps, lava or hidden doors. It solves all tasks of its levels, except one in a
hundred of Levitate-Potion, where a ghost comes out of the bottle.
"""

from __future__ import annotations

import re
from collections import deque

from palaestra.environments.families.nethack.map import DOORS, STEPS, Cell, walkable
from palaestra.environments.families.nethack.text import Screen

STAIRS = "staircase down"
WALKS = re.compile(
    r"Room(-Random|-Dark)?-\d+x\d+|MazeWalk-.*|KeyRoom-.*|Labyrinth-.*|ClosedDoor"
    r"|LockedDoor(-Fixed)?|MultiRoom-N\d+(-OpenDoor|-Locked)?"
)
USES = {  # prefix of the name: the item, and the action on it
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
TRIES = 8  # of a move that changes nothing


def knows(name: str) -> bool:
    """Return whether the expert can play the level of that name."""
    return bool(WALKS.fullmatch(name)) or re.sub("-(Fixed|Full|Restricted)$", "", name) in USES


class Expert:
    """A scripted player of one level, which chooses actions from successive screens."""

    def __init__(self, name: str) -> None:
        heads = (head for head in USES if name.startswith(head))
        self._item, self._use = USES.get(next(heads, ""), ("", ""))
        self._kicks = "Locked" in name
        self._map: dict[Cell, str] = {}
        self._visited: set[Cell] = set()
        self._failed: dict[tuple[Cell, Cell, str], int] = {}  # (from, to, kind of cell): failures
        self._tried: tuple[Cell, Cell] | None = None  # the last move

    def next(self, screen: Screen) -> str:
        """Return the next action, or "" if nothing is left to try."""
        if screen.asking:
            return self._answer(screen)
        self._learn(screen)
        if STAIRS in self._map.values() and (step := self._towards(screen, self._stairs())):
            return step
        if self._kicks and (step := self._at_a_door(screen, "kick")):
            return step
        if self._item and (action := self._use_item(screen)):
            return action
        return self._towards(screen, self._frontier())

    # ── details ──────────────────────────────────────────────────────────────

    def _answer(self, screen: Screen) -> str:
        if screen.asks_direction:
            (x, y), doors = screen.at, self._doors()
            steps = (step for step, (a, d) in STEPS.items() if (x + a, y + d) in doors)
            return next(steps, "north")
        if screen.message.startswith("What do you want to"):
            return self._item if self._held(screen) else "esc"
        if "ring-finger" in screen.message:
            return "left"
        return "y" if self._use else "esc"

    def _learn(self, screen: Screen) -> None:
        """Update the map from a screen; count a move that changed nothing as failed."""
        here = screen.at
        seen = {cell: kind for cell, kind in screen.cells.items() if cell != here}
        if self._tried and self._tried[0] == here:
            move = (*self._tried, self._map.get(self._tried[1], ""))
            tries = TRIES if "locked" in screen.message else 1
            self._failed[move] = self._failed.get(move, 0) + tries
        self._tried = None
        self._map |= seen
        self._map.setdefault(here, "floor of a room")
        self._visited.add(here)

    def _held(self, screen: Screen) -> bool:
        return any(self._item in name for name in screen.items.values())

    def _use_item(self, screen: Screen) -> str:
        """Return the next action that fetches or uses the item; "" if neither is possible now."""
        held = self._held(screen)
        if self._item == "key" and held:
            return self._at_a_door(screen, self._use)
        if held:
            return self._use
        lying = {c for c, kind in screen.cells.items() if self._item in kind and c != screen.at}
        if lying:
            return self._towards(screen, lying)
        if self._item in USED_IN_PLACE:
            return self._use
        return "" if self._item == "key" and not self._on_it(screen) else "pickup"

    def _on_it(self, screen: Screen) -> bool:
        here = screen.message if screen.message.startswith("You see here") else ""
        return self._item in (self._map.get(screen.at) or "") + here

    def _at_a_door(self, screen: Screen, action: str) -> str:
        """Return the action in front of a closed door, and elsewhere a step towards a door."""
        straight = [step for step in STEPS.values() if 0 in step]
        beside = {(x + a, y + d) for x, y in self._doors() for a, d in straight}
        doorsteps = set(filter(self._open, beside))
        return action if screen.at in doorsteps else self._towards(screen, doorsteps)

    def _doors(self) -> set[Cell]:
        return {cell for cell, kind in self._map.items() if kind == "closed door"}

    def _open(self, cell: Cell) -> bool:
        return walkable(self._map.get(cell, "")) or cell in self._visited

    def _stairs(self) -> set[Cell]:
        return {cell for cell, kind in self._map.items() if kind == STAIRS}

    def _frontier(self) -> set[Cell]:
        """Return the open, unvisited cells with an unknown neighbour."""
        return {
            (x, y)
            for (x, y), kind in self._map.items()
            if (walkable(kind) or kind == "closed door")
            and (x, y) not in self._visited
            and any((x + a, y + d) not in self._map for a, d in STEPS.values())
        }

    def _towards(self, screen: Screen, goals: set[Cell]) -> str:
        """Return the first step of a shortest path to a goal; "" if none is reachable."""
        start = screen.at
        first: dict[Cell, str] = {start: ""}
        queue = deque([start])
        while queue:
            cell = queue.popleft()
            if cell in goals and cell != start:
                x, y = STEPS[first[cell]]
                self._tried = (start, (start[0] + x, start[1] + y))
                return first[cell]
            for step, (a, d) in STEPS.items():
                to = (cell[0] + a, cell[1] + d)
                if to not in first and self._passes(cell, to, goals):
                    first[to] = first[cell] or step
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
