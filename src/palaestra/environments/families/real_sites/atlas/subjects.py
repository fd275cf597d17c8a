"""What tasks are about: countries and towns of a world's split, and the person's contacts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.atlas import encyclopedia, town_map
from palaestra.environments.families.real_sites.atlas.countries import FACTS, Country, countries
from palaestra.environments.families.real_sites.atlas.page_blocks import SITES as NAMES
from palaestra.environments.families.real_sites.atlas.splits import of_split
from palaestra.environments.families.real_sites.atlas.streets import Spot, streets
from palaestra.environments.families.real_sites.atlas.towns import Town, town_named, towns
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk
from palaestra.environments.families.real_sites.site_world import SiteWorld

SITES = tuple(NAMES)  # of all worlds; a task begins at the first
LARGE = 1500  # towns that are asked about, by population
NO_LIST = re.compile(r"\band\b", re.I)  # in a name that cannot stand in a list
T = TypeVar("T")


def own(world: SiteWorld, items: Iterable[T]) -> list[T]:
    """Return the items that belong to a world's split."""
    return of_split(world.sites["encyclopedia"].seed, items)


def with_fact(world: SiteWorld, fact: str) -> list[Country]:
    """Return the countries of a world's split whose article has a fact as a number."""
    known = own(world, countries().values())
    return [one for one in known if one.number(fact) is not None and not NO_LIST.search(one.name)]


def with_capital(world: SiteWorld) -> list[tuple[Country, Town]]:
    """Return the countries of a world's split whose capital is on the map, with roads."""
    known = own(world, countries().values())
    pairs = ((one, town_named(one.code, one.capital)) for one in known if one.capital)
    return [(country, town) for country, town in pairs if town is not None]


def a_town(world: SiteWorld, rng: random.Random) -> Town:
    """Draw a town of a world's split whose name no other large town has."""
    large = list(towns().values())[:LARGE]
    names = [town.name for town in large]
    return rng.choice([town for town in own(world, large) if names.count(town.name) == 1])


def some_spots(town: Town, rng: random.Random, count: int) -> list[Spot]:
    """Draw different places of a town."""
    return rng.sample(streets(town.id).spots, count)


def of_kind(town: Town, kind: str) -> list[Spot]:
    """Return the places of a kind in a town."""
    return [spot for spot in streets(town.id).spots if spot.kind == kind]


def contacts(world: SiteWorld) -> list[Row]:
    """Return the person's contacts whose names are no other's, and who have a mailbox."""
    found = world.rows("contacts.contact", "owner = ?", (MAIN,))
    names = [row["name"] for row in found]
    boxes = {row["email"] for row in world.sites["mail"].rows("supervisor.person")}
    return [row for row in found if names.count(row["name"]) == 1 and row["email"] in boxes]


# ── numbers and words ────────────────────────────────────────────────────────


def plain(number: float) -> str:
    """Return a number as people type it."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def asked(fact: str, country: str) -> str:
    """Return the words for a fact of a country: "the total area of Chad in square kilometres"."""
    known = FACTS[fact]
    return f"the {known.words} of {country}" + (f" in {known.unit}" if known.unit else "")


def different(rng: random.Random, pairs: Sequence[tuple[T, float]], count: int) -> list[T] | None:
    """Draw items whose numbers all differ; None if there are too few."""
    rng_pairs = rng.sample(list(pairs), min(len(pairs), 3 * count))
    found: dict[float, T] = {}
    for item, number in rng_pairs:
        found.setdefault(number, item)
    return list(found.values())[:count] if len(found) >= count else None


# ── ways to pages ────────────────────────────────────────────────────────────


def article_at(country: Country, section: str = "") -> str:
    """Return the address of an article, or of a section of it."""
    return encyclopedia.HOST + encyclopedia.path_of(country.name, section)


def read(walk: SiteWalk, country: Country, section: str = "") -> None:
    """Search an article, and open it or a section of it."""
    walk.go(f"{encyclopedia.HOST}/")
    walk.go(f"{encyclopedia.HOST}/search?query={country.name.replace(' ', '+')}")
    walk.go(article_at(country))
    if section:
        walk.go(article_at(country, section))


def read_fact(walk: SiteWalk, country: Country, fact: str) -> None:
    """Open the section that has a fact."""
    read(walk, country, FACTS[fact].section)


def fact_at(country: Country, fact: str) -> str:
    """Return the address of the section that has a fact."""
    return article_at(country, FACTS[fact].section)


def town_at(town: Town) -> str:
    """Return the address of a town's page."""
    return town_map.HOST + town_map.town_path(town)


def spot_at(town: Town, spot: Spot) -> str:
    """Return the address of a place's page."""
    return town_map.HOST + town_map.place_path(town, spot)


def visit(walk: SiteWalk, town: Town, spot: Spot | None = None) -> None:
    """Search a town, if none of its pages is open, and open its page, or that of a place."""
    if not walk.url.startswith(f"{town_map.HOST}/town/{town.id}/"):
        walk.go(f"{town_map.HOST}/")
        walk.go(f"{town_map.HOST}/search?query={town.name.replace(' ', '+')}")
        walk.go(town_at(town))
    if spot is None:
        walk.go(town_at(town))
        return
    listed = town_map.HOST + town_map.places_path(town, spot.kind)
    if not walk.leads(listed):
        walk.go(town_at(town))
    walk.go(listed)
    walk.go(spot_at(town, spot))


def look_up(walk: SiteWalk, contact: Row) -> None:
    """Search a contact and open its page."""
    name = contact["name"].replace(" ", "+")
    walk.go(f"http://contacts.example/search_contacts?query={name}")
    walk.go(contact_at(contact))


def contact_at(contact: Row) -> str:
    """Return the address of a contact's page."""
    return f"http://contacts.example/show_contact?contact_id={contact['id']}"
