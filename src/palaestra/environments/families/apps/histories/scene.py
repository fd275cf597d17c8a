"""Where a history takes place: the rows, the people, and the draws."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from palaestra.environments.families.apps.names import ADJECTIVES, NOUNS
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import State
from palaestra.environments.families.apps.world import TIME


@dataclass(frozen=True, slots=True)
class Scene:
    """A world in the making."""

    state: State
    rng: random.Random  # of one app
    people: Sequence[Person]
    active: Sequence[Person]  # those who have a history; the first person is one of them
    start: datetime

    def things(self, number: int) -> list[str]:
        """Return different things, such as "amber kettle"; no two share both words."""
        pairs = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
        return self.rng.sample(pairs, number)

    def past(self, number: int, days: int) -> list[str]:
        """Return times in the days before the start, in their order."""
        minutes = sorted(self.rng.sample(range(30, days * 24 * 60), number), reverse=True)
        return [(self.start - timedelta(minutes=before)).strftime(TIME) for before in minutes]

    def day(self, after: int) -> str:
        """Return a day after the start."""
        return f"{self.start + timedelta(days=after):%Y-%m-%d}"

    def known(self, person: Person, relation: str = "") -> list[Person]:
        """Return who is in somebody's circle, of one relation or of all."""
        return [
            self.people[id - 1]
            for id, found in person.circle.items()
            if found == relation or not relation
        ]

    def staff(self) -> list[Person]:
        """Return the first person and their colleagues."""
        first = self.people[0]
        return [first, *self.known(first, "colleague")]

    def facts(self, things: Sequence[str]) -> list[str]:
        """Return two facts about each thing, in sentences such as "The … of the … is 4821."."""
        found = []
        for thing in things:
            for what in self.rng.sample(list(FACTS), 2):
                low, high = FACTS[what]
                found.append(f"The {what} of the {thing} is {self.rng.randint(low, high)}.")
        return found


FACTS = {
    "door code": (1000, 9999),
    "table number": (1, 80),
    "phone extension": (100, 999),
    "locker number": (1, 300),
    "inventory number": (10_000, 99_999),
    "platform": (1, 24),
}
"""What a fact can be about, and between which numbers it lies."""
