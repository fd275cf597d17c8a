"""Tasks on the map: places, ways through streets and by road, and the saved places."""

from __future__ import annotations

import itertools
import random

from palaestra.environments.families.real_sites.atlas import map_picture
from palaestra.environments.families.real_sites.atlas.map_picture import STEPS, ZOOMS, Window
from palaestra.environments.families.real_sites.atlas.streets import (
    KINDS,
    METRES_A_MINUTE,
    By,
    Spot,
    minutes,
    streets,
)
from palaestra.environments.families.real_sites.atlas.subjects import (
    SITES,
    a_town,
    of_kind,
    plain,
    some_spots,
    spot_at,
    town_at,
    visit,
)
from palaestra.environments.families.real_sites.atlas.town_map import (
    BY,
    HOST,
    NOTES,
    road_path,
    route_path,
    town_path,
)
from palaestra.environments.families.real_sites.atlas.towns import (
    SPEED,
    Town,
    road,
    town_named,
    towns_of,
)
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk, deed
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    template,
)

ABSENT = ("aquarium", "stadium", "lighthouse", "observatory", "casino", "zoo")


def route_at(town: Town, origin: Spot, destination: Spot, by: By) -> str:
    """Return the address of a way through streets."""
    return HOST + route_path(town, origin, destination, by)


def find_route(walk: SiteWalk, town: Town, origin: Spot, destination: Spot, by: By) -> None:
    """Open a way through streets, from the page of where it begins."""
    walk.go(spot_at(town, origin))
    walk.go(route_at(town, origin, destination, by))


def length(town: Town, origin: Spot, destination: Spot, by: By) -> float:
    """Return the length of a way in metres."""
    way = streets(town.id).route(origin, destination, by)
    assert way is not None  # places lie where a car gets
    return way.length


@template("world", "medium", "find", SITES, ["places"])
def place_detail(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask what the page of a place says."""
    town = a_town(world, rng)
    spot, other = some_spots(town, rng, 2)
    details = [
        ("phone number", spot.phone, other.phone),
        ("address", spot.address, other.address),
        ("number of seats", str(spot.seats), str(other.seats)),
    ]
    asked, right, wrong = rng.choice(details)
    way = deed(world, lambda walk: visit(walk, town, spot))
    return SiteTask(
        f"What is the {asked} of the {spot.kind} '{spot.name}' in {town.name} ({town.country}), by "
        "the map?",
        deeds=(way,),
        answer=right,
        hops=(town_at(town), spot_at(town, spot)),
        wrong=(WrongEnd(way.gestures, wrong if wrong != right else "none"),),
    )


@template("world", "medium", "plan", SITES, ["ways"])
def route_length(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask how long a way is, in metres or minutes."""
    town = a_town(world, rng)
    origin, to = some_spots(town, rng, 2)
    by = rng.choice(list(METRES_A_MINUTE))
    found = streets(town.id).route(origin, to, by)
    assert found is not None
    unit, right = rng.choice([("metres", found.length), ("minutes", minutes(found, by))])

    def way(walk: SiteWalk) -> None:
        visit(walk, town, origin)
        find_route(walk, town, origin, to, by)

    made = deed(world, way)
    return SiteTask(
        f"How many {unit} is it {BY[by]} from '{origin.name}' ({origin.kind}) to '{to.name}' in "
        f"{town.name} ({town.country}), by the map?",
        deeds=(made,),
        answer=right,
        hops=(town_at(town), route_at(town, origin, to, by)),
        wrong=(WrongEnd(made.gestures, plain(right + 1)),),
    )


@template("world", "hard", "compare", SITES, ["ways", "massive-memory"])
def nearest_place(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask which place of a kind is nearest on foot."""
    town, kind = a_town(world, rng), rng.choice(KINDS)
    (station,) = of_kind(town, "station")
    some = of_kind(town, kind)
    far = {spot.name: length(town, station, spot, "foot") for spot in some}
    if len(set(far.values())) < len(some):
        return None

    def way(walk: SiteWalk) -> None:
        visit(walk, town, station)
        for spot in some:
            find_route(walk, town, station, spot, "foot")

    made, ranked = deed(world, way), sorted(far, key=lambda name: far[name])
    return SiteTask(
        f"Which {kind} in {town.name} ({town.country}) is nearest to the main station on foot, by "
        "the map? Answer with its name.",
        deeds=(made,),
        answer=ranked[0],
        hops=tuple(route_at(town, station, spot, "foot") for spot in some),
        wrong=(WrongEnd(made.gestures, ranked[1]),),
    )


@template("world", "hard", "compare", SITES, ["places", "massive-memory"])
def best_rated(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask which place of a kind has the best rating."""
    town, kind = a_town(world, rng), rng.choice(KINDS)
    some = of_kind(town, kind)
    ranked = sorted(some, key=lambda spot: spot.rating)

    def way(walk: SiteWalk) -> None:
        for spot in some:
            visit(walk, town, spot)

    made = deed(world, way)
    return SiteTask(
        f"Which {kind} in {town.name} ({town.country}) has the best rating on the map? Answer with "
        "its name.",
        deeds=(made,),
        answer=ranked[-1].name,
        hops=tuple(spot_at(town, spot) for spot in some),
        wrong=(WrongEnd(made.gestures, ranked[0].name),),
    )


def saving(world: SiteWorld, town: Town, spot: Spot, note: str = "") -> Deed:
    """Return how to save a place."""

    def save(walk: SiteWalk) -> None:
        visit(walk, town, spot)
        walk.send(f"{spot_at(town, spot)}/save", {"note": note})

    return deed(world, save)


@template("world", "medium", "change", SITES, ["lists"])
def save_place(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Save a place with a note."""
    town = a_town(world, rng)
    spot, other = some_spots(town, rng, 2)
    note, wrong = rng.sample(NOTES, 2)
    return SiteTask(
        f"On the map, save the {spot.kind} '{spot.name}' in {town.name} ({town.country}) with the "
        f"note '{note}'.",
        deeds=(saving(world, town, spot, note),),
        hops=(spot_at(town, spot),),
        wrong=(
            WrongEnd(saving(world, town, other, note).gestures),
            WrongEnd(saving(world, town, spot, wrong).gestures),
        ),
    )


@template("world", "hard", "change", SITES, ["lists", "long-term-memory"])
def save_two(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Save the places of two towns, each with the other one's phone number as its note."""
    first, second = a_town(world, rng), a_town(world, rng)
    here, there = some_spots(first, rng, 1)[0], some_spots(second, rng, 1)[0]
    deeds = (
        saving(world, first, here, there.phone),
        saving(world, second, there, here.phone),
    )

    def look(walk: SiteWalk) -> None:
        visit(walk, first, here)
        visit(walk, second, there)

    swapped = (saving(world, first, here, here.phone), saving(world, second, there, there.phone))
    return SiteTask(
        f"On the map, save the {here.kind} '{here.name}' in {first.name} ({first.country}) and the "
        f"{there.kind} '{there.name}' in {second.name} ({second.country}); the note of each is the "
        "phone number of the other.",
        deeds=(deed(world, look), *deeds),
        hops=(spot_at(first, here), spot_at(second, there)),
        wrong=(
            WrongEnd(deeds[0].gestures),
            WrongEnd((*swapped[0].gestures, "go 'http://home.example/'", *swapped[1].gestures)),
        ),
    )


@template("world", "easy", "moderate", SITES, ["lists"])
def remove_place(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Take a place off the saved ones."""
    row, other = rng.sample(world.rows("map.saved_place"), 2)

    def way(id: int) -> Deed:
        return deed(world, lambda walk: walk.change_saved(HOST, id, "remove"))

    return SiteTask(
        f"Remove the place in {row['town']} from my saved places on the map.",
        deeds=(way(row["id"]),),
        wrong=(WrongEnd(way(other["id"]).gestures),),
    )


@template("world", "easy", "configure", SITES, ["lists"])
def change_note(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the note of a saved place."""
    row, other = rng.sample(world.rows("map.saved_place"), 2)
    note = rng.choice([one for one in NOTES if one not in (row["note"], other["note"])])

    def way(id: int, words: str) -> Deed:
        return deed(world, lambda walk: walk.change_saved(HOST, id, "note", {"note": words}))

    return SiteTask(
        f"Change the note of my saved place in {row['town']} to '{note}'.",
        deeds=(way(row["id"], note),),
        wrong=(
            WrongEnd(way(other["id"], note).gestures),
            WrongEnd(way(row["id"], f"{row['note']}{note}").gestures),
        ),
    )


@template("world", "medium", "find", SITES, ["pages"])
def show_on_map(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Pan and zoom the map until it shows a place; several pictures are right."""
    town = a_town(world, rng)
    made, last = streets(town.id), len(ZOOMS) - 1
    (spot,) = some_spots(town, rng, 1)
    side = range(STEPS - STEPS // ZOOMS[last] + 1)
    every = [Window(x, y, last) for x in side for y in side]
    right = [window for window in every if map_picture.shows(made, window, spot.id)]
    ways = {window: _clicks(window) for window in right}
    reached = [window for window in right if ways[window] is not None]
    if not reached:
        return None
    goal = min(reached, key=lambda window: len(ways[window] or ()))
    wrong = next(window for window in every if _clicks(window) and window not in right)

    def way(window: Window) -> Deed:
        def move(walk: SiteWalk) -> None:
            visit(walk, town)
            for one in _clicks(window) or ():
                walk.go(HOST + town_path(town, one))

        return deed(world, move)

    pictures = (map_picture.picture(made, window) for window in right)
    return SiteTask(
        f"On the map of {town.name} ({town.country}), zoom in as far as it goes, and move the map "
        f"until it shows number {spot.id}, the {spot.kind} '{spot.name}', not at the very edge. "
        "Leave it open.",
        deeds=(way(goal),),
        pictures=frozenset(picture.encode() for picture in pictures),
        hops=(town_at(town),),
        wrong=(
            WrongEnd(way(wrong).gestures),
            WrongEnd(deed(world, lambda walk: visit(walk, town)).gestures),
        ),
    )


def _clicks(goal: Window) -> list[Window] | None:
    """Return the windows on the shortest way of clicks to a window; None if none leads there."""
    ways, todo = {Window(): list[Window]()}, [Window()]
    for window in todo:
        if window == goal:
            return ways[window]
        for other in window.moved().values():
            if other not in ways:
                ways[other] = [*ways[window], other]
                todo.append(other)
    return None


@template("world", "medium", "plan", SITES, ["ways", "pages"])
def open_route(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Leave a way open."""
    town = a_town(world, rng)
    origin, to = some_spots(town, rng, 2)
    by, other = rng.sample(list(METRES_A_MINUTE), 2)

    def way(start: Spot, end: Spot, how: By) -> Deed:
        def find(walk: SiteWalk) -> None:
            visit(walk, town, start)
            find_route(walk, town, start, end, how)

        return deed(world, find)

    return SiteTask(
        f"Show the way {BY[by]} from '{origin.name}' ({origin.kind}) to '{to.name}' in {town.name} "
        f"({town.country}) on the map, and leave it open.",
        deeds=(way(origin, to, by),),
        page=route_at(town, origin, to, by),
        hops=(town_at(town),),
        wrong=(WrongEnd(way(origin, to, other).gestures), WrongEnd(way(to, origin, by).gestures)),
    )


@template("world", "hard", "plan", SITES, ["ways", "calculation"])
def tour_length(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask for the length of a way over several places."""
    town = a_town(world, rng)
    stops, by = some_spots(town, rng, 3), rng.choice(list(METRES_A_MINUTE))
    legs = list(itertools.pairwise(stops))
    total = sum(length(town, origin, to, by) for origin, to in legs)

    def way(walk: SiteWalk) -> None:
        for origin, to in legs:
            visit(walk, town, origin)
            find_route(walk, town, origin, to, by)

    made = deed(world, way)
    named = ", then to ".join(f"'{spot.name}' ({spot.kind})" for spot in stops[1:])
    return SiteTask(
        f"How many metres is it in all {BY[by]} in {town.name} ({town.country}) from "
        f"'{stops[0].name}' ({stops[0].kind}) to {named}, by the map?",
        deeds=(made,),
        answer=total,
        hops=tuple(route_at(town, origin, to, by) for origin, to in legs),
        wrong=(WrongEnd(made.gestures, plain(length(town, *legs[0], by))),),
    )


@template("world", "medium", "plan", SITES, ["ways"])
def road_between_towns(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask how far it is by road, or how long that takes."""
    town = a_town(world, rng)
    others = [one for one in towns_of(town.fips) if town_named(one.fips, one.name) and one != town]
    if town not in towns_of(town.fips) or not others:
        return None
    other = rng.choice(others)
    found = road(town, other)
    assert found is not None
    unit, right = rng.choice(
        [("km", found.length), ("minutes", float(f"{found.length / SPEED * 60:.0f}"))]
    )

    def way(walk: SiteWalk) -> None:
        visit(walk, town)
        walk.go(HOST + road_path(town, other))

    made = deed(world, way)
    return SiteTask(
        f"How many {unit} is it by road from {town.name} to {other.name} ({town.country}), by the "
        "map?",
        deeds=(made,),
        answer=right,
        hops=(town_at(town), HOST + road_path(town, other)),
        wrong=(WrongEnd(made.gestures, plain(right + 1)),),
    )


@template("world", "medium", "impossible", SITES, ["no-way"])
def no_such_place(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask about a place that the town does not have."""
    town, kind = a_town(world, rng), rng.choice(ABSENT)
    way = deed(world, lambda walk: visit(walk, town, of_kind(town, "museum")[0]))
    spot = of_kind(town, "museum")[0]
    return SiteTask(
        f"What is the phone number of the {kind} in {town.name} ({town.country}), by the map?",
        deeds=(way,),
        possible=False,
        wrong=(WrongEnd(way.gestures, spot.phone), WrongEnd(way.gestures, "")),
    )
