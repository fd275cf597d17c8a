"""Tasks that only a look at pictures decides: no text of any page says what they show."""

from __future__ import annotations

import random

from palaestra.environments.families.real_sites.atlas.drawings import KINDS
from palaestra.environments.families.real_sites.atlas.gallery import (
    HOST,
    album,
    album_path,
    albums,
)
from palaestra.environments.families.real_sites.atlas.hop_tasks import writing
from palaestra.environments.families.real_sites.atlas.subjects import SITES, contacts, look_up
from palaestra.environments.families.real_sites.atlas.walking import SiteWalk, deed
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Maker,
    SiteTask,
    WrongEnd,
    template,
)


def open_album(walk: SiteWalk, number: int) -> None:
    """Open an album of the gallery."""
    walk.go(f"{HOST}/")
    walk.go(HOST + album_path(number))


def _maker(kind: str) -> Maker:
    def make(world: SiteWorld, rng: random.Random) -> SiteTask:
        number = rng.choice([number for number, other in albums().items() if other == kind])
        found = album(world.sites["gallery"].seed, number)
        way = deed(world, lambda walk: open_album(walk, number))
        return SiteTask(
            found.question.format(album=f"album {number} of the gallery"),
            deeds=(way,),
            answer=found.answer,
            hops=(HOST + album_path(number),),
            wrong=(WrongEnd(way.gestures, f"not {found.answer}"),),
        )

    make.__name__, make.__doc__ = f"look_at_{kind}", KINDS[kind].__doc__
    return make


for _kind in KINDS:
    template("world", "easy", "find", SITES, ["look"])(_maker(_kind))


@template("world", "medium", "change", SITES, ["look", "hops"])
def mail_what_is_seen(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Three hops: what a picture shows, an address, a mail."""
    number = rng.choice([number for number, kind in albums().items() if kind in ("clock", "years")])
    found, people = album(world.sites["gallery"].seed, number), contacts(world)
    if not people:
        return None
    person = rng.choice(people)

    def look(walk: SiteWalk) -> None:
        open_album(walk, number)
        look_up(walk, person)

    question = found.question.format(album=f"album {number} of the gallery")
    subject = f"Album {number}"
    return SiteTask(
        f"{question} Mail the answer to {person['name']}, whose address is in my contacts.",
        deeds=(deed(world, look), writing(world, person["email"], subject, found.answer)),
        mentions=(found.answer,),
        hops=(HOST + album_path(number),),
        wrong=(WrongEnd(writing(world, person["email"], subject, "I see nothing.").gestures),),
    )
