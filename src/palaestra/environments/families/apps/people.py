"""People who know each other: households, colleagues, friends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.environments.families.apps.names import (
    ADJECTIVES,
    FIRST_NAMES,
    NOUNS,
    STREETS,
    SURNAMES,
    TOWNS,
)

HOUSEHOLDS = (1, 2, 2, 3, 4)  # numbers of people who live together
TEAM = 4  # people of one company
FRIENDS = 3  # that each person has at least
NAMESAKES = 20  # in the circle of every so many-th person, two pairs share a first name
PRIVATE_DOMAIN = "postbox.example"


@dataclass(slots=True, eq=False)
class Person:
    """Somebody in a world. `circle` is mutual: whoever is in it has this person in theirs."""

    id: int
    employer: str = ""
    first: str = ""
    surname: str = ""
    phone: str = ""
    birthday: str = ""
    address: str = ""
    circle: dict[int, str] = field(default_factory=dict)  # the relation to each, by id

    @property
    def name(self) -> str:
        return f"{self.first} {self.surname}"

    @property
    def email(self) -> str:
        """The address at the employer; without one, a private address."""
        domain = f"{self.employer.lower().replace(' ', '')}.example"
        local = f"{self.first}.{self.surname}".lower()
        return f"{local}@{domain if self.employer else PRIVATE_DOMAIN}"


def draw_people(rng: random.Random, number: int) -> list[Person]:
    """Return people with the ids 1 to `number`; the first has family, colleagues and friends."""
    people = _households(rng, number)
    _teams(rng, people)
    _friends(rng, people)
    _name(rng, people)
    phones = rng.sample(range(10_000), number)
    for person in people:
        person.phone = f"555-{phones[person.id - 1]:04d}"
        year, month, day = rng.randint(1950, 2007), rng.randint(1, 12), rng.randint(1, 28)
        person.birthday = f"{year}-{month:02d}-{day:02d}"
        person.circle = dict(sorted(person.circle.items()))
    return people


def _link(one: Person, other: Person, relation: str) -> None:
    """Make two people know each other, unless they do already."""
    if one is not other and other.id not in one.circle:
        one.circle[other.id] = other.circle[one.id] = relation


def _households(rng: random.Random, number: int) -> list[Person]:
    people: list[Person] = []
    homes: list[list[Person]] = []
    while len(people) < number:
        size = rng.choice(HOUSEHOLDS) if homes else 3
        first = len(people) + 1
        last = min(number, first + size - 1)
        home = [Person(id) for id in range(first, last + 1)]
        homes.append(home)
        people += home
    surnames = _cycled(rng, SURNAMES, len(homes))
    for home, surname in zip(homes, surnames, strict=True):
        address = f"{rng.randint(1, 120)} {rng.choice(STREETS)}, {rng.choice(TOWNS)}"
        for person in home:
            person.surname, person.address = surname, address
            for other in home:
                _link(person, other, "family")
    return people


def _teams(rng: random.Random, people: Sequence[Person]) -> None:
    """Give most people an employer; the first person's colleagues are not of their family."""
    family, others = people[1:3], list(people[3:])
    rng.shuffle(others)
    order = [people[0], *others, *family]
    teams = [order[start : start + TEAM] for start in range(0, len(order), TEAM)]
    companies = [
        f"{adjective.title()} {noun.title()}" for adjective in ADJECTIVES for noun in NOUNS
    ]
    for team, company in zip(teams, rng.sample(companies, len(teams)), strict=True):
        if len(team) == 1:
            continue  # the one who is left over works for nobody
        for person in team:
            person.employer = company
            for other in team:
                _link(person, other, "colleague")


def _friends(rng: random.Random, people: Sequence[Person]) -> None:
    for person in people:
        strangers = [other for other in people if other.id not in person.circle | {person.id: ""}]
        rng.shuffle(strangers)
        had = sum(relation == "friend" for relation in person.circle.values())
        wanted = max(0, FRIENDS - had)
        for other in strangers[:wanted]:
            _link(person, other, "friend")
        if strangers[wanted:] and rng.random() < 0.3:
            _link(person, strangers[wanted], "other")


def _name(rng: random.Random, people: Sequence[Person]) -> None:
    """Give first names, so that no two people have the same full name.

    In the circles of the first person and of some others, two pairs share a first name on purpose:
    a request that names only "Anna" does not say which.
    """
    for person, first in zip(people, _cycled(rng, FIRST_NAMES, len(people)), strict=True):
        person.first = first
    shared: set[int] = set()
    for person in people[::NAMESAKES]:
        known = [people[id - 1] for id, _ in sorted(person.circle.items())]
        friends = [other for other in known if person.circle[other.id] == "friend"]
        for relation in ("colleague", "family"):
            pair = [
                (one, friend)
                for one in known
                for friend in friends
                if person.circle[one.id] == relation
                and one.surname != friend.surname
                and not shared & {one.id, friend.id}
            ]
            if pair:
                one, friend = rng.choice(pair)
                friend.first = one.first
                shared |= {one.id, friend.id}
    taken: set[str] = set()
    for person in people:
        while person.name in taken:
            person.first = rng.choice(FIRST_NAMES)
        taken.add(person.name)


def _cycled(rng: random.Random, words: Sequence[str], number: int) -> list[str]:
    """Return words in a random order; one occurs twice only after all have occurred."""
    drawn: list[str] = []
    while len(drawn) < number:
        drawn += rng.sample(words, len(words))
    return drawn[:number]
