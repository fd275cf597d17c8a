"""The world of life services: cards, places, notes, meals and venues, besides all journeys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime

from palaestra.environments.families.apps.histories import spending
from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.names import STREETS, TOWNS
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.world import TIME
from palaestra.environments.families.desk.desks.life_services import MEAL, PLACE, VENUE

ALLERGENS = ("nuts", "milk", "eggs", "fish", "soya", "celery")
KITCHENS = ("Thai", "Greek", "Lebanese", "Mexican", "Italian")
MEALS = {
    "curry": 12.5, "noodle soup": 9.0, "salad": 8.5, "stew": 13.0, "flatbread": 7.5,
    "rice bowl": 11.0, "dumplings": 10.5, "omelette": 8.0,
}  # fmt: skip
"""Kinds of meals, with the price of a plain one."""
NAMES = ("house", "garden", "winter", "spicy")
TRAVELLERS = 3  # users who have been on journeys before
NO_LIMIT = "200"  # above the total of any order that a user asks for


def populate(state: State, people: Sequence[Person], rng: random.Random) -> None:
    """Insert what people who use the services have; the first person is none of them."""
    start = datetime.strptime(START, TIME)
    scene = Scene(state, rng, people, people[1 : 1 + TRAVELLERS], start)
    for person in people[1:]:
        _possessions(scene, person)
    for kitchen in KITCHENS:
        for name in rng.sample(NAMES, 2):
            for kind in rng.sample(sorted(MEALS), 3):
                contains = ", ".join(sorted(rng.sample(ALLERGENS, 2)))
                row: Row = {"name": f"{kitchen} {name} {kind}", "kitchen": kitchen}
                row |= {"contains": contains, "price": MEALS[kind] + rng.randint(0, 6) / 2}
                state.insert(MEAL, row)
    venues = iter(scene.things(3 * len(TOWNS)))
    for town in TOWNS:
        for _ in range(3):
            row = {"name": next(venues).title(), "kitchen": rng.choice(KITCHENS), "town": town}
            row |= {"deposit": rng.randint(2, 12) / 2, "largest": rng.randint(6, 12)}
            state.insert(VENUE, row)
    spending.travel(scene)
    prices = rng.sample(range(40, 59), 2 * len(TOWNS))  # below other hotels; no two are equal
    for number, thing in enumerate(scene.things(2 * len(TOWNS))):
        row = {"name": f"Pension {thing.title()}", "town": TOWNS[number // 2]}
        state.insert("travel.hotel", row | {"stars": 2, "price": prices[number] / 2 + 0.25})


def _possessions(scene: Scene, person: Person) -> None:
    """Insert somebody's accounts, cards, places and notes."""
    state, rng = scene.state, scene.rng
    digits = rng.sample(range(1000, 10_000), 2)
    for number, name in enumerate(("checking", "savings")):
        row: Row = {"owner": person.id, "name": name, "balance": float(rng.randint(40, 60) * 100)}
        account = state.insert("bank.account", row)
        row = {"owner": person.id, "account_id": account, "digits": str(digits[number])}
        state.insert("bank.card", row | {"status": "active", "daily_limit": 3000.0})
    for label in ("home", "office", "workshop"):
        address = f"{rng.randint(1, 120)} {rng.choice(STREETS)}, {rng.choice(TOWNS)}"
        address = person.address if label == "home" else address
        state.insert(PLACE, {"owner": person.id, "label": label, "address": address})
    for topic, value in (("allergy", rng.choice(ALLERGENS)), ("limit", NO_LIMIT)):
        row = {"owner": person.id, "topic": topic, "value": value}
        state.insert("services.note", row)
