"""Generated apps are valid blueprints, unlike the stock apps, different by seed, and usable."""

from __future__ import annotations

import random

import pytest

from palaestra.environments.families.apps import generated
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import columns
from palaestra.environments.families.apps.generated import blueprint_text, generated_app
from palaestra.environments.families.apps.population import START, populate
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.world import World

SEEDS = range(200)


def test_200_generated_apps_are_valid() -> None:
    for seed in SEEDS:
        app = generated_app(seed)
        entities = list(app.blueprint.entities.values())
        assert 1 <= len(entities) <= 2
        for entity in entities:
            assert 4 <= len(entity.fields) - 1 <= 7
            assert len({column.type for column in entity.fields.values()}) >= 3
            assert entity.search and entity.owner == "owner"
        assert len(app.blueprint.references) == len(entities) - 1
        assert all(about.about for about in (app.blueprint, *entities))


def test_some_have_lawful_changes_unique_keys_and_rate_limits_and_some_do_not() -> None:
    blueprints = [generated_app(seed).blueprint for seed in SEEDS]
    first = [next(iter(blueprint.entities.values())) for blueprint in blueprints]
    for has in (
        [bool(entity.moves) for entity in first],
        [bool(entity.unique) for entity in first],
        [blueprint.changes_per_minute is not None for blueprint in blueprints],
        [len(blueprint.entities) == 2 for blueprint in blueprints],
    ):
        assert 50 < sum(has) < 190


def test_no_two_of_1000_seeds_give_the_same() -> None:
    assert len({blueprint_text(seed) for seed in range(1000)}) == 1000


def test_a_seed_always_gives_the_same() -> None:
    assert blueprint_text(12) == blueprint_text(12)
    assert generated_app(12).blueprint == generated_app(12).blueprint


def test_names_are_not_those_of_stock_apps() -> None:
    stock = columns(stock_suite().blueprints)
    names = {part for table in stock for part in table.split(".")}
    fields = {field for table in stock.values() for field in table} - {"owner"}
    for seed in SEEDS:
        blueprint = generated_app(seed).blueprint
        assert not names & {blueprint.app, *blueprint.entities}
        for entity in blueprint.entities.values():
            assert not fields & (entity.fields.keys() - {"title"})


def test_the_documented_example_is_what_its_seed_gives() -> None:
    text = "\n".join(f"    {line}".rstrip() for line in blueprint_text(3).splitlines())
    assert generated.__doc__ is not None and text in generated.__doc__


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_made_shown_changed_and_deleted(seed: int) -> None:
    app = generated_app(seed)
    suite = Suite.of([*stock_suite().apps.values(), app])
    world = World(suite, populate(suite, "small", seed), START)
    rng = random.Random(seed)
    before = world.state.total()
    for name, entity in app.blueprint.entities.items():
        own = world.state.find(f"{app.name}.{name}", owner=1)
        given = {key: own[0][key] for key in entity.arguments()}
        if entity.unique:
            assert world.call(f"{app.name}.create_{name}", given, person=1).status == 409
        title = next(iter(given))
        given[title] = "a name that nothing else has"
        if life := next(iter(entity.moves), None):
            given[life] = entity.fields[life].choices[0]
        made = world.call(f"{app.name}.create_{name}", given, person=1)
        assert made.ok, made
        key = {f"{name}_id": made.body["id"]}
        assert world.call(f"{app.name}.show_{name}", key, person=1).body == made.body
        found = world.call(f"{app.name}.search_{name}s", {"query": "nothing else"}, person=1)
        assert found.body["total"] == 1
        if life:
            unlawful = entity.fields[life].choices[2]
            assert (
                world.call(f"{app.name}.update_{name}", key | {life: unlawful}, person=1).status
                == 409
            )
            lawful = rng.choice(entity.moves[life][given[life]])
            assert world.call(f"{app.name}.update_{name}", key | {life: lawful}, person=1).ok
        assert world.call(f"{app.name}.show_{name}", key, person=2).status == 404
        assert world.call(f"{app.name}.delete_{name}", key, person=1).ok
    assert world.state.total() == before and world.state.changes() == []
