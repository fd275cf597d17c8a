"""Tasks over several sites: what one says is looked for in the next, and goes into a third.

Progress counts the hops: the pages that one has to see on the way.
"""

from __future__ import annotations

import random

from palaestra.environments.families.real_sites.atlas.countries import Country, countries
from palaestra.environments.families.real_sites.atlas.encyclopedia import HOST
from palaestra.environments.families.real_sites.atlas.encyclopedia_tasks import FOUND
from palaestra.environments.families.real_sites.atlas.map_tasks import saving
from palaestra.environments.families.real_sites.atlas.streets import Spot
from palaestra.environments.families.real_sites.atlas.subjects import (
    SITES,
    article_at,
    asked,
    contact_at,
    contacts,
    fact_at,
    look_up,
    of_kind,
    plain,
    read,
    read_fact,
    spot_at,
    town_at,
    visit,
    with_capital,
    with_fact,
)
from palaestra.environments.families.real_sites.atlas.town_map import HOST as MAP
from palaestra.environments.families.real_sites.atlas.town_map import road_path
from palaestra.environments.families.real_sites.atlas.towns import Town, road, town_named, towns_of
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk, deed
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    template,
)

CAPITAL = "Government"  # the section that names the capital


@template("world", "medium", "find", SITES, ["hops"])
def capital_on_map(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Two hops: which town is the capital, and what the map says of it."""
    country, town = rng.choice(with_capital(world))

    def way(walk: SiteWalk) -> None:
        read(walk, country, CAPITAL)
        visit(walk, town)

    made = deed(world, way)
    return SiteTask(
        f"How many people live in the capital of {country.name}, by the map?",
        deeds=(made,),
        answer=town.population,
        hops=(article_at(country, CAPITAL), town_at(town)),
        wrong=(WrongEnd(made.gestures, plain(country.number("population") or 1)),),
    )


@template("world", "hard", "compare", SITES, ["hops", "massive-memory"])
def larger_capital(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Four hops: two capitals, and their populations on the map."""
    pair = rng.sample(with_capital(world), 2)
    ranked = sorted(pair, key=lambda one: one[1].population)
    if ranked[0][1].population == ranked[1][1].population:
        return None

    def way(walk: SiteWalk) -> None:
        for country, town in pair:
            read(walk, country, CAPITAL)
            visit(walk, town)

    made = deed(world, way)
    names = " or ".join(country.name for country, _ in pair)
    return SiteTask(
        f"Which has more people by the map, the capital of {names}? Answer with the name of the "
        "capital.",
        deeds=(made,),
        answer=ranked[1][1].name,
        hops=tuple(
            address
            for country, town in pair
            for address in (article_at(country, CAPITAL), town_at(town))
        ),
        wrong=(WrongEnd(made.gestures, ranked[0][1].name),),
    )


def writing(world: SiteWorld, email: str, subject: str, body: str) -> Deed:
    """Return how to send a mail."""
    return deed(world, lambda walk: walk.mail(email, subject, body))


@template("world", "hard", "change", SITES, ["hops"])
def mail_a_fact(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Three hops: a fact, an address, a mail."""
    fact, people = rng.choice(FOUND), contacts(world)
    if len(people) < 2 or not (known := with_fact(world, fact)):
        return None
    country, (person, other) = rng.choice(known), rng.sample(people, 2)
    number = country.number(fact) or 0.0

    def look(walk: SiteWalk) -> None:
        read_fact(walk, country, fact)
        look_up(walk, person)

    looked, told = deed(world, look), f"It is {plain(number)}."
    return SiteTask(
        f"Mail {person['name']} {asked(fact, country.name)}, by the encyclopedia (in digits). The "
        "address is in my contacts.",
        deeds=(looked, writing(world, person["email"], country.name, told)),
        mentions=(plain(number),),
        hops=(fact_at(country, fact), contact_at(person)),
        wrong=(
            WrongEnd(writing(world, other["email"], country.name, told).gestures),
            WrongEnd(writing(world, person["email"], country.name, "It is 1.").gestures),
        ),
    )


@template("world", "hard", "plan", SITES, ["hops"])
def mail_a_distance(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Four hops: a capital, a way from there, an address, a mail."""
    country, town = rng.choice(with_capital(world))
    others = [one for one in towns_of(town.fips) if town_named(one.fips, one.name) and one != town]
    people = contacts(world)
    if not others or len(people) < 2:
        return None
    to, (person, other) = rng.choice(others), rng.sample(people, 2)
    found = road(town, to)
    assert found is not None
    km = plain(found.length)

    def look(walk: SiteWalk) -> None:
        read(walk, country, CAPITAL)
        visit(walk, town)
        walk.go(MAP + road_path(town, to))
        look_up(walk, person)

    looked, subject = deed(world, look), f"The way to {to.name}"
    return SiteTask(
        f"Mail {person['name']} how many km it is by road from the capital of {country.name} to "
        f"{to.name}, by the map (in digits). The address is in my contacts.",
        deeds=(looked, writing(world, person["email"], subject, f"It is {km} km.")),
        mentions=(km,),
        hops=(
            article_at(country, CAPITAL),
            town_at(town),
            MAP + road_path(town, to),
            contact_at(person),
        ),
        wrong=(
            WrongEnd(writing(world, other["email"], subject, f"It is {km} km.").gestures),
            WrongEnd(writing(world, person["email"], subject, "It is 0 km.").gestures),
            WrongEnd(looked.gestures, km),
        ),
    )


@template("world", "hard", "plan", SITES, ["hops", "long-term-memory"])
def hotel_in_the_capital(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Five hops: a capital, its best hotel, which is saved, an address, a mail."""
    country, town = rng.choice(with_capital(world))
    hotels, people = of_kind(town, "hotel"), contacts(world)
    if not people:
        return None
    person, ranked = rng.choice(people), sorted(hotels, key=lambda one: one.rating)
    best, worst = ranked[-1], ranked[0]

    def look(walk: SiteWalk) -> None:
        read(walk, country, CAPITAL)
        for hotel in hotels:
            visit(walk, town, hotel)
        look_up(walk, person)

    looked = deed(world, look)
    saved = saving(world, town, best, person["name"])
    subject = f"A hotel in {town.name}"

    def mailed(spot: Spot) -> Deed:
        return writing(world, person["email"], subject, f"The {spot.name}, phone {spot.phone}.")

    return SiteTask(
        f"Find the hotel with the best rating in the capital of {country.name} on the map. Save it "
        f"there with the note '{person['name']}', and mail {person['name']} (see my contacts) its "
        "name and phone number.",
        deeds=(looked, saved, mailed(best)),
        mentions=(best.name, best.phone),
        hops=(
            article_at(country, CAPITAL),
            *(spot_at(town, hotel) for hotel in hotels),
            contact_at(person),
        ),
        wrong=(
            WrongEnd(saved.gestures),
            WrongEnd(mailed(best).gestures),
            WrongEnd((*saved.gestures, "go 'http://home.example/'", *mailed(worst).gestures)),
        ),
    )


@template("world", "hard", "change", SITES, ["hops", "long-term-memory"])
def stations_of_two_capitals(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Six hops: two capitals, the phone numbers of their stations, two notes."""
    pairs = rng.sample(with_capital(world), 2)

    def phone(town: Town) -> str:
        return of_kind(town, "station")[0].phone

    def look(walk: SiteWalk) -> None:
        for country, town in pairs:
            read(walk, country, CAPITAL)
            visit(walk, town, of_kind(town, "station")[0])

    def noting(country: Country, note: str) -> Deed:
        def save(walk: SiteWalk) -> None:
            read(walk, country)
            walk.send(f"{article_at(country)}/save", {"note": note})

        return deed(world, save)

    (first, here), (second, there) = pairs
    deeds = noting(first, phone(here)), noting(second, phone(there))
    swapped = noting(first, phone(there)), noting(second, phone(here))
    return SiteTask(
        f"Save the articles about {first.name} and {second.name} to my reading list in the "
        "encyclopedia; the note of each is the phone number of the main station in its capital, "
        "by the map.",
        deeds=(deed(world, look), *deeds),
        hops=tuple(
            address
            for country, town in pairs
            for address in (
                article_at(country, CAPITAL),
                town_at(town),
                spot_at(town, of_kind(town, "station")[0]),
            )
        ),
        wrong=(
            WrongEnd(deeds[0].gestures),
            WrongEnd((*swapped[0].gestures, "go 'http://home.example/'", *swapped[1].gestures)),
        ),
    )


@template("world", "hard", "find", SITES, ["hops"])
def capital_of_a_saved_country(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Three hops: a saved article, its capital, a place there."""
    towns = {country.name: town for country, town in with_capital(world)}
    saved = [row for row in world.rows("encyclopedia.saved_article") if row["article"] in towns]
    if not saved:
        return None
    row = rng.choice(saved)
    country, town = countries()[row["article"]], towns[row["article"]]
    (station,) = of_kind(town, "station")

    def look(walk: SiteWalk) -> None:
        walk.go(f"{HOST}/saved")
        walk.go(f"{HOST}/saved/{row['id']}")
        read(walk, country, CAPITAL)
        visit(walk, town, station)

    made = deed(world, look)
    return SiteTask(
        f"My reading list has a country with the note '{row['note']}'. What is the address of the "
        "main station in its capital, by the map?",
        deeds=(made,),
        answer=station.address,
        hops=(f"{HOST}/saved", article_at(country, CAPITAL), spot_at(town, station)),
        wrong=(WrongEnd(made.gestures, station.phone),),
    )
