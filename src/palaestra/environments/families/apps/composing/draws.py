"""Values for the fields of entities, drawn by their types."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from palaestra.environments.families.apps.compiler.blueprint import Column, qualified, refusal
from palaestra.environments.families.apps.composing.goal import MAIN, mine
from palaestra.environments.families.apps.world import TIME, World

WORDS = (
    "amber", "anchor", "birch", "bridge", "canal", "cedar", "cobalt", "copper", "delta", "ember",
    "falcon", "fern", "garnet", "harbour", "hazel", "indigo", "ivory", "jade", "lantern", "linden",
    "maple", "meadow", "nickel", "north", "olive", "onyx", "orchid", "pine", "quartz", "raven",
    "river", "saffron", "silver", "slate", "spruce", "summit", "tulip", "velvet", "willow", "zinc",
)  # fmt: skip
"""Words of texts that nothing else determines."""

TRIES = 20


def value_for(world: World, table: str, field: str, rng: random.Random) -> Any:
    """Draw a value that the field takes; None if there is none, or no unused one was found."""
    app, _, name = table.partition(".")
    entity = world.suite.blueprints[app].entities[name]
    column = entity.fields[field]
    alone = (field,) in entity.unique
    taken = {row[field] for row in mine(world, table)} if alone else set()
    for _ in range(TRIES):
        value = drawn_value(world, app, column, rng)
        if value not in taken and value is not None and refusal(column, value) is None:
            return value
    return None


def another(world: World, table: str, field: str, value: Any, rng: random.Random) -> Any:
    """Draw a value that differs from the given one; None if none was found."""
    for _ in range(TRIES):
        drawn = value_for(world, table, field, rng)
        if drawn is not None and drawn != value:
            return drawn
    return None


def drawn_value(world: World, app: str, column: Column, rng: random.Random) -> Any:
    """Draw a value of a field's type within its limits; None if no row can be referred to."""
    low = 0 if column.least is None else column.least
    match column.type:
        case "choice":
            return rng.choice(column.choices)
        case "boolean":
            return rng.random() < 0.5
        case "integer" if column.refers:
            rows = world.state.rows(qualified(app, column.refers))
            return rng.choice(rows)["id"] if rows else None
        case "integer":
            high = low + 100 if column.most is None else column.most
            step = 5 if high - low >= 50 else 1
            return rng.randrange(int(low), int(high) + 1, step)
        case "money":
            high = low + 1000 if column.most is None else column.most
            return float(rng.randrange(int(low), int(high) + 1, 5))
        case "person":
            return rng.choice(world.state.rows("supervisor.person"))["id"]
        case "email":
            people = world.state.rows("supervisor.person", "id <> ?", [MAIN])
            return rng.choice(people)["email"] if people else None
        case "phone":
            return f"555-{rng.randrange(1000, 9999)}"
        case "date" | "time" as kind:
            day = datetime.strptime(world.start, TIME) + timedelta(days=rng.randrange(1, 28))
            moment = day.replace(hour=rng.randrange(8, 19), minute=rng.choice((0, 15, 30, 45)))
            return moment.strftime(TIME)[: 10 if kind == "date" else None]
        case _:
            return " ".join(rng.sample(WORDS, 2)).capitalize()
