"""The streets of a town, made up from its number: a bent grid with a river, a park and places.

A town is the same in every world, as on a real map. Footpaths of the park are for people on foot
and by bicycle; the river is crossed by a few bridges.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from palaestra.environments.families.real_sites.atlas.towns import Way, components, shortest

COLUMNS, ROWS = 8, 6
BLOCK = (90, 170)  # metres between streets
BEND = 14  # metres by which a crossing is moved
MISSING = 0.12  # of the parts of streets
BRIDGES = 3
SPOTS = 26
By = Literal["foot", "bicycle", "car"]
METRES_A_MINUTE: dict[By, int] = {"foot": 80, "bicycle": 250, "car": 500}
KINDS = (
    "bakery", "café", "cinema", "hotel", "library", "museum", "pharmacy", "school",
)  # fmt: skip
"""Of most kinds a town has three or four; each also has one station."""

_FIRST = (
    "Mill", "Church", "Station", "Garden", "Harbour", "King", "Queen", "Market", "Bridge", "School",
    "Forest", "Castle", "Lake", "Meadow", "Orchard", "Tower", "Linden", "Maple", "Chestnut", "Rose",
    "Granite", "Silver", "Copper", "Falcon", "Swan", "Juniper", "Abbey", "Cedar",
)  # fmt: skip
_SECOND = ("Street", "Road", "Lane", "Avenue", "Row")
_NAMES = (
    "Aurora", "Bellevue", "Comet", "Dolphin", "Emerald", "Fountain", "Galaxy", "Harvest", "Iris",
    "Jubilee", "Kestrel", "Lantern", "Magnolia", "Neptune", "Olive", "Phoenix", "Quartz", "Ruby",
    "Saffron", "Tulip", "Union", "Violet", "Willow", "Zenith", "Amber", "Beacon", "Clover",
    "Dahlia",
)  # fmt: skip
OPENS = ("7:00", "8:00", "8:30", "9:00", "10:00")
CLOSES = ("16:00", "17:30", "18:00", "20:00", "22:00")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place that one can search for."""

    id: int  # from 1, as the number on the map
    name: str
    kind: str
    street: str
    number: int
    node: int  # the crossing at which it is
    opens: str
    phone: str
    rating: float  # 1 to 5; no two of a kind in a town have the same
    seats: int

    @property
    def address(self) -> str:
        return f"{self.street} {self.number}"


@dataclass(frozen=True)
class Streets:
    """The network of a town. Crossings are numbered row by row from the upper left."""

    points: tuple[tuple[float, float], ...]  # of crossings, in metres to the right and down
    streets: Mapping[tuple[int, int], str]  # the name of each part of a street, by its two ends
    paths: frozenset[tuple[int, int]]  # the parts that are footpaths
    park: tuple[int, int, int, int]  # left, top, right and bottom column and row
    river: int  # the row of crossings above it
    spots: tuple[Spot, ...]

    def length(self, one: int, other: int) -> int:
        """Return the length of a part of a street in metres."""
        return max(1, round(math.dist(self.points[one], self.points[other])))

    def network(self, by: By) -> dict[int, dict[int, float]]:
        """Return the lengths of the parts that one may use, by both ends."""
        found: dict[int, dict[int, float]] = {node: {} for node in range(len(self.points))}
        for one, other in self.streets:
            if by != "car" or (one, other) not in self.paths:
                found[one][other] = found[other][one] = self.length(one, other)
        return found

    def route(self, origin: Spot, destination: Spot, by: By) -> Way | None:
        """Return the shortest way between two places in metres."""
        return shortest(self.network(by), origin.node, destination.node)

    def directions(self, way: Way) -> list[tuple[str, int]]:
        """Return the streets of a way and how far to go on each, in metres."""
        found: list[tuple[str, int]] = []
        for one, other in zip(way.nodes, way.nodes[1:], strict=False):
            name = self.streets[min(one, other), max(one, other)]
            metres = self.length(one, other)
            if found and found[-1][0] == name:
                metres += found.pop()[1]
            found.append((name, metres))
        return found


def minutes(way: Way, by: By) -> int:
    """Return how long a way takes, in whole minutes, at least one."""
    return max(1, math.ceil(way.length / METRES_A_MINUTE[by]))


@lru_cache(maxsize=64)
def streets(town: int) -> Streets:
    """Return the streets of the town with that number."""
    rng = random.Random(f"streets {town}")
    across = [rng.randint(*BLOCK) for _ in range(COLUMNS)]
    down = [rng.randint(*BLOCK) for _ in range(ROWS)]
    points = tuple(
        (
            sum(across[: column + 1]) + rng.uniform(-BEND, BEND),
            sum(down[: row + 1]) + rng.uniform(-BEND, BEND),
        )
        for row in range(ROWS)
        for column in range(COLUMNS)
    )
    names = [f"{first} {rng.choice(_SECOND)}" for first in rng.sample(_FIRST, ROWS + COLUMNS)]
    parts = {}
    for node in range(len(points)):
        row, column = divmod(node, COLUMNS)
        if column + 1 < COLUMNS:
            parts[node, node + 1] = names[row]
        if row + 1 < ROWS:
            parts[node, node + COLUMNS] = names[ROWS + column]
    river = rng.randrange(1, ROWS - 2)
    crossing = [part for part in parts if part[0] // COLUMNS == river != part[1] // COLUMNS]
    for part in rng.sample(crossing, len(crossing) - BRIDGES):
        del parts[part]
    left, top = rng.randrange(COLUMNS - 2), 0 if river > 1 else river + 1
    park = (left, top, left + 2, top + min(2, ROWS - 1 - top))
    paths = frozenset(part for part in parts if all(_inside(node, park) for node in part))
    for part in rng.sample(sorted(parts), round(MISSING * len(parts))):
        if part not in paths and _connected_without(parts, part, paths, len(points)):
            del parts[part]
    made = Streets(points, parts, paths, park, river, ())
    return Streets(points, parts, paths, park, river, _spots(made, rng))


def _inside(node: int, park: tuple[int, int, int, int]) -> bool:
    row, column = divmod(node, COLUMNS)
    return park[0] <= column <= park[2] and park[1] <= row <= park[3]


def _connected_without(
    parts: Mapping[tuple[int, int], str],
    left_out: tuple[int, int],
    paths: frozenset[tuple[int, int]],
    nodes: int,
) -> bool:
    """Return whether a car still gets everywhere outside of the park, and people everywhere."""
    return all(
        len(components(_network(parts, {left_out, *closed}, nodes))) == count
        for closed, count in (
            (frozenset[tuple[int, int]](), 1),
            (paths, len(components(_network(parts, paths, nodes)))),
        )
    )


def _network(
    parts: Mapping[tuple[int, int], str], closed: Collection[tuple[int, int]], nodes: int
) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {node: {} for node in range(nodes)}
    for one, other in parts:
        if (one, other) not in closed:
            found[one][other] = found[other][one] = 1
    return found


def _spots(made: Streets, rng: random.Random) -> tuple[Spot, ...]:
    """Draw the places, at crossings that a car reaches."""
    reached = max(components(made.network("car")), key=len)
    nodes = rng.sample(sorted(reached), min(SPOTS, len(reached)))
    kinds = ["station", *(KINDS[number % len(KINDS)] for number in range(len(nodes) - 1))]
    names, ratings = rng.sample(_NAMES, len(nodes)), list(range(15, 50))
    rng.shuffle(ratings)
    found = []
    for number, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
        beside = [name for part, name in sorted(made.streets.items()) if node in part]
        name = f"{names[number]} {kind}" if kind != "station" else "Main station"
        found.append(
            Spot(
                number + 1,
                name,
                kind,
                rng.choice(beside),
                rng.randint(1, 99),
                node,
                f"{rng.choice(OPENS)}–{rng.choice(CLOSES)}",
                f"555-{rng.randrange(10_000):04}",
                ratings[number] / 10,
                rng.randrange(10, 200, 2),
            )
        )
    return tuple(found)
