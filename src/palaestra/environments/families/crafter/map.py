"""A map of a Crafter world at one step, with shortest paths."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from crafter import constants, objects

from palaestra.environments.families.crafter.world import Repeatable

Cell = tuple[int, int]
Meets = Callable[[Cell, Cell], bool]  # whether a cell and the faced cell are as wanted
Stance = tuple[Cell, Cell]  # a cell, and a direction to face

MOVES: dict[Cell, str] = {
    (-1, 0): "move_left",
    (1, 0): "move_right",
    (0, -1): "move_up",
    (0, 1): "move_down",
}
OPEN = constants.place["stone"]["where"]  # where creatures or arrows can be; a stone closes it
FIGHT = {"Cow": 4, "Zombie": 6, "Skeleton": 4, "Arrow": 1}  # steps to remove one
BRIDGE = 3  # extra steps to cross water: place a stone, and collect it again


class NoPath(Exception):
    """No path leads to a wanted cell."""


class Map:
    """The whole map; valid until the next step."""

    def __init__(self, env: Repeatable, kept: Collection[Cell] = ()) -> None:
        self.player: Any = env.player
        self.kept = kept  # cells that must not be cleared
        self._ground: list[list[int]] = env.world._mat_map.tolist()
        self._names: dict[int, str | None] = env.world._mat_names
        self._width, self._height = env.world.area
        self.things = {cell_of(thing): thing for thing in env.world.objects}
        self.here = cell_of(self.player)
        del self.things[self.here]

    def material(self, at: Cell) -> str | None:
        x, y = at
        inside = 0 <= x < self._width and 0 <= y < self._height
        return self._names[self._ground[x][y]] if inside else None

    def exists(self, material: str) -> bool:
        return any(self._names[number] == material for row in self._ground for number in row)

    def is_a(self, at: Cell, *kinds: type) -> bool:
        return isinstance(self.things.get(at), kinds)

    def free(self, at: Cell, materials: Sequence[str]) -> bool:
        """Return whether the cell has one of the materials and is not occupied."""
        return self.material(at) in materials and at not in self.things and at != self.here

    def walkable(self, at: Cell) -> bool:
        return self.material(at) in constants.walkable and at not in self.things

    def habitable(self, at: Cell) -> bool:
        """Return whether the player can be there, if necessary by digging."""
        return at == self.here or self.walkable(at) or self.material(at) == "stone"

    def open(self, at: Cell) -> bool:
        """Return whether creatures or arrows can come from there."""
        return self.material(at) in OPEN and not self.is_a(at, objects.Plant)

    def near(self, at: Cell, bench: str) -> bool:
        """Return whether a bench is in the 3 x 3 cells around, so that it can be used."""
        x, y = at
        return any(self.material((x + i, y + j)) == bench for i in (-1, 0, 1) for j in (-1, 0, 1))

    def go(self, meets: Meets, action: str) -> str:
        """Return the first step of the shortest path to a wanted stance; `action` if we are there.

        Raises:
            NoPath: no such stance can be reached.
        """
        facing = (int(self.player.facing[0]), int(self.player.facing[1]))
        queue: list[tuple[int, int, Stance, str]] = [(0, 0, (self.here, facing), "")]
        seen: set[Stance] = set()
        pushed = 0
        while queue:
            cost, _, stance, first = heapq.heappop(queue)
            if stance in seen:
                continue
            seen.add(stance)
            if meets(stance[0], plus(*stance)):
                return first or action
            for following, price, step in self._steps(stance):
                if following not in seen:
                    pushed += 1
                    heapq.heappush(queue, (cost + price, pushed, following, first or step))
        raise NoPath

    def _steps(self, stance: Stance) -> Iterator[tuple[Stance, int, str]]:
        """Yield the next stances, their cost in steps, and the first action."""
        here, facing = stance
        for direction, move in MOVES.items():
            there = plus(here, direction)
            if self.walkable(there):
                yield (there, direction), 1, move
            elif self.material(there) != "lava":  # turning to lava walks into it
                yield (here, direction), 1, move
                if clearing := self._clearing(there):
                    action, price = clearing
                    turned = direction == facing
                    yield (there, direction), price + 2 - turned, action if turned else move

    def _clearing(self, at: Cell) -> tuple[str, int] | None:
        """Return the action that clears an occupied cell, and its cost; None if none does."""
        has = self.player.inventory
        if at in self.kept:
            return None
        if thing := self.things.get(at):
            price = FIGHT.get(type(thing).__name__)
            return None if price is None else ("do", price)
        material = self.material(at)
        info = constants.collect.get(material)
        if info and info["leaves"] in constants.walkable:
            able = all(has[tool] >= count for tool, count in info["require"].items())
            return ("do", 1) if able else None
        if material == "water" and has["stone"] and has["wood_pickaxe"]:
            return ("place_stone", BRIDGE)
        return None


def cell_of(thing: Any) -> Cell:
    return int(thing.pos[0]), int(thing.pos[1])


def plus(one: Cell, other: Cell) -> Cell:
    return one[0] + other[0], one[1] + other[1]


def minus(one: Cell, other: Cell) -> Cell:
    return one[0] - other[0], one[1] - other[1]


def distance(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def around(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells adjacent to `cells`, without them."""
    beside = [plus(cell, direction) for cell in cells for direction in MOVES]
    return [cell for cell in beside if cell not in cells]
