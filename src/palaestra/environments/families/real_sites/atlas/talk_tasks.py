"""Tasks in which the person holds something back, and says it if asked (`say 'Which …?'`)."""

from __future__ import annotations

import random

from palaestra.environments.families.apps.composing.gaps import OTHER_FACTS
from palaestra.environments.families.real_sites.atlas.encyclopedia_tasks import FOUND
from palaestra.environments.families.real_sites.atlas.hop_tasks import writing
from palaestra.environments.families.real_sites.atlas.map_tasks import (
    find_route,
    length,
    route_at,
    saving,
)
from palaestra.environments.families.real_sites.atlas.streets import METRES_A_MINUTE
from palaestra.environments.families.real_sites.atlas.subjects import (
    SITES,
    a_town,
    asked,
    contact_at,
    contacts,
    fact_at,
    look_up,
    plain,
    read_fact,
    some_spots,
    spot_at,
    visit,
    with_fact,
)
from palaestra.environments.families.real_sites.atlas.town_map import BY
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk, deed
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import SiteTask, WrongEnd, template


def known(rng: random.Random, **facts: str) -> dict[str, str]:
    """Return what the person knows: some facts, and two that have nothing to do with them.

    Args:
        rng: draws the others.
        facts: what is said, by key words with underscores between.
    """
    own = {words.replace("_", " "): fact for words, fact in facts.items()}
    return own | dict(rng.sample(sorted(OTHER_FACTS.items()), 2))


@template("world", "medium", "change", SITES, ["talk"])
def save_what_is_meant(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Save a place that only the person can name."""
    town = a_town(world, rng)
    spot, other = some_spots(town, rng, 2)
    ask = deed(world, lambda walk: walk.say("Which place do you mean?"))
    return SiteTask(
        f"On the map, save the place in {town.name} ({town.country}) that I have in mind; leave "
        "the note empty. Ask me which one.",
        deeds=(ask, saving(world, town, spot)),
        facts=known(rng, place_name_which_where=f"It is the {spot.kind} '{spot.name}'."),
        hops=(spot_at(town, spot),),
        wrong=(WrongEnd(saving(world, town, other).gestures),),
    )


@template("world", "hard", "plan", SITES, ["talk", "ways"])
def way_as_usual(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask how long a way is, whose end and means only the person knows."""
    town = a_town(world, rng)
    origin, to, other = some_spots(town, rng, 3)
    by = rng.choice(list(METRES_A_MINUTE))
    right, wrong = length(town, origin, to, by), length(town, origin, other, by)
    if right == wrong:
        return None

    def way(walk: SiteWalk) -> None:
        walk.say("Where do you want to go?")
        walk.say("How do you travel?")
        visit(walk, town, origin)
        find_route(walk, town, origin, to, by)

    made = deed(world, way)
    facts = known(
        rng,
        where_place_destination_to_go=f"I want to go to '{to.name}' ({to.kind}).",
        how_travel_means_by_foot_car_bicycle=f"I travel {BY[by]}.",
    )
    return SiteTask(
        f"How many metres is my way from '{origin.name}' ({origin.kind}) in {town.name} "
        f"({town.country}), by the map? Ask me where I want to go and how I travel.",
        deeds=(made,),
        answer=right,
        facts=facts,
        hops=(route_at(town, origin, to, by),),
        wrong=(WrongEnd(made.gestures, plain(wrong)),),
    )


@template("world", "hard", "change", SITES, ["talk", "hops"])
def mail_what_is_meant(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Mail a fact of a country to somebody, both of which only the person can name."""
    fact, people = rng.choice(FOUND), contacts(world)
    if len(people) < 2 or not (countries := with_fact(world, fact)):
        return None
    country, (person, other) = rng.choice(countries), rng.sample(people, 2)
    number = plain(country.number(fact) or 0.0)

    def look(walk: SiteWalk) -> None:
        walk.say("Which country do you mean?")
        walk.say("Who shall get it?")
        read_fact(walk, country, fact)
        look_up(walk, person)

    told = f"It is {number}."
    facts = known(
        rng,
        country_which_where=f"I mean {country.name}.",
        who_whom_recipient_friend_person=f"Send it to {person['name']}.",
    )
    return SiteTask(
        f"Mail {asked(fact, 'the country that I mean')}, by the encyclopedia (in digits), to the "
        "friend that I mean. Ask me about both; the address is in my contacts.",
        deeds=(deed(world, look), writing(world, person["email"], country.name, told)),
        mentions=(number,),
        facts=facts,
        hops=(fact_at(country, fact), contact_at(person)),
        wrong=(
            WrongEnd(writing(world, other["email"], country.name, told).gestures),
            WrongEnd(writing(world, person["email"], country.name, "It is 1.").gestures),
        ),
    )
