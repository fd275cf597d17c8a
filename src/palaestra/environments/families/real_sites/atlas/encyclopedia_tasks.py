"""Tasks in the encyclopedia: facts, comparisons, sums, and the reading list."""

from __future__ import annotations

import random

from palaestra.environments.families.real_sites.atlas.countries import FACTS, SECTIONS, countries
from palaestra.environments.families.real_sites.atlas.encyclopedia import HOST
from palaestra.environments.families.real_sites.atlas.subjects import (
    NO_LIST,
    SITES,
    article_at,
    asked,
    different,
    fact_at,
    own,
    plain,
    read,
    read_fact,
    with_fact,
)
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk, deed
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    template,
)

FOUND = (
    "airports", "area", "births", "border", "coast", "elevation", "heliports", "heritage",
    "internet", "life", "population", "ports", "railways", "age",
)  # fmt: skip
COUNTED = ("airports", "heliports", "heritage", "ports")  # facts that can be added up
IMAGINED = ("Ruritania", "Freedonia", "Genovia", "Sylvania", "Graustark", "Zubrowka", "Latveria")
NOTES = ("for the trip", "for the talk", "read on Sunday", "ask the teacher", "compare later")


@template("world", "easy", "find", SITES, ["facts"])
def fact_of_country(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask for a number of one article."""
    fact = rng.choice(FOUND)
    if len(known := with_fact(world, fact)) < 2:
        return None
    country, other = rng.sample(known, 2)
    number, wrong = country.number(fact), other.number(fact)
    if number is None or wrong is None or number == wrong:
        return None
    way = deed(world, lambda walk: read_fact(walk, country, fact))
    return SiteTask(
        f"What is {asked(fact, country.name)}, by the encyclopedia?",
        deeds=(way,),
        answer=number,
        hops=(fact_at(country, fact),),
        wrong=(WrongEnd(way.gestures, plain(wrong)), WrongEnd(way.gestures, None)),
    )


@template("world", "medium", "compare", SITES, ["facts"])
def larger_of_two(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask which of two articles has the larger number."""
    fact = rng.choice(FOUND)
    pair = different(rng, [(one, one.number(fact) or 0.0) for one in with_fact(world, fact)], 2)
    if pair is None:
        return None
    smaller, larger = sorted(pair, key=lambda one: one.number(fact) or 0.0)

    def way(walk: SiteWalk) -> None:
        for one in pair:
            read_fact(walk, one, fact)

    found = deed(world, way)
    return SiteTask(
        f"Which has the larger {FACTS[fact].words}, by the encyclopedia: "
        f"{pair[0].name} or {pair[1].name}? Answer with its name.",
        deeds=(found,),
        answer=larger.name,
        hops=tuple(fact_at(one, fact) for one in pair),
        wrong=(WrongEnd(found.gestures, smaller.name),),
    )


@template("world", "medium", "compare", SITES, ["calculation"])
def difference_of_two(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask by how much two numbers differ."""
    fact = rng.choice(COUNTED)
    pair = different(rng, [(one, one.number(fact) or 0.0) for one in with_fact(world, fact)], 2)
    if pair is None:
        return None
    first, second = (one.number(fact) or 0.0 for one in pair)

    def way(walk: SiteWalk) -> None:
        for one in pair:
            read_fact(walk, one, fact)

    found = deed(world, way)
    return SiteTask(
        f"What is the difference between {asked(fact, pair[0].name)} and that of {pair[1].name}, "
        "by the encyclopedia? Answer with a number that is not negative.",
        deeds=(found,),
        answer=abs(first - second),
        hops=tuple(fact_at(one, fact) for one in pair),
        wrong=(WrongEnd(found.gestures, plain(first + second)),),
    )


@template("world", "easy", "find", SITES, ["facts"])
def neighbours(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask for a set: the countries that one borders."""
    country = rng.choice(own(world, countries().values()))
    names = list(country.neighbours)
    text = country.sections["Geography"].get("Land boundaries: border countries", "")
    plainly = text.count(" km") == len(names) == text.count(";") + 1
    if not 2 <= len(names) <= 8 or not plainly or any(NO_LIST.search(name) for name in names):
        return None
    way = deed(world, lambda walk: read(walk, country, "Geography"))
    return SiteTask(
        f"Which countries does {country.name} border on land, by the encyclopedia? Name all.",
        deeds=(way,),
        answer=frozenset(names),
        hops=(article_at(country, "Geography"),),
        wrong=(
            WrongEnd(way.gestures, ", ".join(names[1:])),
            WrongEnd(way.gestures, ", ".join([*names, country.name])),
        ),
    )


@template("world", "hard", "compare", SITES, ["massive-memory"])
def those_above(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask which of five articles have a number above a limit."""
    fact = rng.choice(FOUND)
    some = different(rng, [(one, one.number(fact) or 0.0) for one in with_fact(world, fact)], 5)
    if some is None:
        return None
    ranked = sorted(some, key=lambda one: one.number(fact) or 0.0)
    cut = rng.randint(1, 3)
    limit, above = ranked[cut].number(fact) or 0.0, ranked[cut + 1 :]

    def way(walk: SiteWalk) -> None:
        for one in some:
            read_fact(walk, one, fact)

    found, names = deed(world, way), [one.name for one in above]
    unit = f" {FACTS[fact].unit}" if FACTS[fact].unit else ""
    return SiteTask(
        f"Of {', '.join(one.name for one in some)}: in which is the {FACTS[fact].words} above "
        f"{plain(limit)}{unit}, by the encyclopedia? Name all of them.",
        deeds=(found,),
        answer=frozenset(names),
        hops=tuple(fact_at(one, fact) for one in some),
        wrong=(
            WrongEnd(found.gestures, ", ".join([*names, ranked[cut].name])),
            WrongEnd(found.gestures, ", ".join(names[1:])),
        ),
    )


@template("world", "hard", "compare", SITES, ["massive-memory", "calculation"])
def total_of_neighbours(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Ask for the sum of a number over all neighbours of a country."""
    country, fact = rng.choice(own(world, countries().values())), rng.choice(COUNTED)
    text = country.sections["Geography"].get("Land boundaries: border countries", "")
    others = [countries().get(name) for name in country.neighbours]
    if not 2 <= len(others) <= 4 or text.count(" km") != len(others):
        return None
    known = [one for one in others if one is not None and one.number(fact) is not None]
    if len(known) < len(others):
        return None
    total = sum(one.number(fact) or 0.0 for one in known)

    def way(walk: SiteWalk) -> None:
        read(walk, country, "Geography")
        for one in known:
            read_fact(walk, one, fact)

    found = deed(world, way)
    wrong = total - (known[-1].number(fact) or 0.0) or total + 1
    return SiteTask(
        f"Add up the {FACTS[fact].words} of each country that {country.name} borders on land, by "
        "the encyclopedia. What is the sum?",
        deeds=(found,),
        answer=total,
        hops=(article_at(country, "Geography"), *(fact_at(one, fact) for one in known)),
        wrong=(WrongEnd(found.gestures, plain(wrong)),),
    )


@template("world", "easy", "change", SITES, ["lists"])
def save_article(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Put an article on the reading list, with a note."""
    country, other = rng.sample(own(world, countries().values()), 2)
    note, wrong = rng.sample(NOTES, 2)

    def way(name: str, words: str) -> Deed:
        def save(walk: SiteWalk) -> None:
            read(walk, countries()[name])
            walk.send(f"{article_at(countries()[name])}/save", {"note": words})

        return deed(world, save)

    right = way(country.name, note)
    return SiteTask(
        f"Save the article about {country.name} to my reading list, with the note '{note}'.",
        deeds=(right,),
        wrong=(
            WrongEnd(way(other.name, note).gestures),
            WrongEnd(way(country.name, wrong).gestures),
            WrongEnd((*right.gestures, f"go '{HOST}/'", *right.gestures[1:])),
        ),
    )


@template("world", "hard", "change", SITES, ["lists", "long-term-memory"])
def save_largest(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Save the article with the largest of three numbers; the note is that number."""
    fact = rng.choice(COUNTED)
    some = different(rng, [(one, one.number(fact) or 0.0) for one in with_fact(world, fact)], 3)
    if some is None:
        return None
    ranked = sorted(some, key=lambda one: one.number(fact) or 0.0)

    def way(index: int) -> Deed:
        def save(walk: SiteWalk) -> None:
            for one in some:
                read_fact(walk, one, fact)
            read(walk, ranked[index])
            note = plain(ranked[index].number(fact) or 0.0)
            walk.send(f"{article_at(ranked[index])}/save", {"note": note})

        return deed(world, save)

    return SiteTask(
        f"Of {', '.join(one.name for one in some)}, find the one with the largest "
        f"{FACTS[fact].words}, and save its article to my reading list. The note is that number, "
        "in digits only.",
        deeds=(way(-1),),
        hops=tuple(fact_at(one, fact) for one in some),
        wrong=(WrongEnd(way(0).gestures), WrongEnd(way(1).gestures)),
    )


@template("world", "easy", "moderate", SITES, ["lists"])
def remove_article(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Take an entry off the reading list by its note."""
    row, other = rng.sample(world.rows("encyclopedia.saved_article"), 2)

    def way(id: int) -> Deed:
        return deed(world, lambda walk: walk.change_saved(HOST, id, "remove"))

    right = way(row["id"])
    return SiteTask(
        f"Remove the article with the note '{row['note']}' from my reading list.",
        deeds=(right,),
        wrong=(
            WrongEnd(way(other["id"]).gestures),
            WrongEnd((*right.gestures, f"go '{HOST}/'", *way(other["id"]).gestures[1:])),
        ),
    )


@template("world", "medium", "configure", SITES, ["lists", "long-term-memory"])
def note_a_fact(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Replace the note of a saved article by a number of that article."""
    row, fact = rng.choice(world.rows("encyclopedia.saved_article")), rng.choice(FOUND)
    country = countries()[row["article"]]
    number = country.number(fact)
    if number is None:
        return None

    def way(note: str) -> Deed:
        def change(walk: SiteWalk) -> None:
            read_fact(walk, country, fact)
            walk.change_saved(HOST, row["id"], "note", {"note": note})

        return deed(world, change)

    return SiteTask(
        f"On my reading list, replace the note of {country.name} by {asked(fact, country.name)}: "
        "only the number, in digits without commas.",
        deeds=(way(plain(number)),),
        hops=(fact_at(country, fact),),
        wrong=(WrongEnd(way(plain(number + 1)).gestures), WrongEnd(way("many").gestures)),
    )


@template("world", "easy", "find", SITES, ["pages"])
def open_section(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Leave a page open."""
    country, other = rng.sample(own(world, countries().values()), 2)
    section, wrong = rng.sample(SECTIONS, 2)
    way = deed(world, lambda walk: read(walk, country, section))
    return SiteTask(
        f"Open the section '{section}' of the article about {country.name}, and leave it open.",
        deeds=(way,),
        page=article_at(country, section),
        wrong=(
            WrongEnd(deed(world, lambda walk: read(walk, country, wrong)).gestures),
            WrongEnd(deed(world, lambda walk: read(walk, other, section)).gestures),
        ),
    )


@template("world", "easy", "impossible", SITES, ["no-way"])
def no_such_country(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Ask about a country that there is not."""
    name, fact = rng.choice(IMAGINED), rng.choice(FOUND)
    way = deed(world, lambda walk: walk.go(f"{HOST}/search?query={name}"))
    return SiteTask(
        f"What is {asked(fact, name)}, by the encyclopedia?",
        deeds=(way,),
        possible=False,
        wrong=(WrongEnd(way.gestures, ""), WrongEnd(way.gestures, "12")),
    )
