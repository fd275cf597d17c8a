"""Worlds whose apps refer to each other.

The apps of a world are fused by a reference: each after the first has an entity that names a row of
the one before it, such as a cat for which a document is kept. After the cross-domain fusion of
AgentSkiller; ours: the link is a field, so that people and rows follow from it.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from typing import Any

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.compiler.blueprint import Blueprint, Entity
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.environments.families.synthesised.lines import SIZE, suite_of
from palaestra.store.codec import JSON
from palaestra.synthesis.blueprint_stage import passed
from palaestra.synthesis.domain_file import Domain
from palaestra.synthesis.stage_files import Stage


def world_stage(domain: Domain) -> Stage:
    """Return the stage that makes worlds: lines with `apps`, blueprints that are linked, `seed`."""

    async def make(made: Made, number: int) -> Sequence[JSON]:
        texts = passed(made["blueprints"])
        if len(texts) < domain.apps:
            raise InputError(
                f"Worlds of {domain.apps} apps need as many blueprints of different names, and "
                f"{len(texts)} passed; set 'blueprints' higher or 'apps' lower, in a new folder."
            )
        rng = random.Random(f"world {domain.seed} {number}")
        apps = linked([tomllib.loads(text) for text in rng.sample(texts, domain.apps)])
        line = {"apps": apps, "seed": rng.getrandbits(32)}
        template = world_template(suite_of(line), SIZE, line["seed"])
        World(suite_of(line), template, START).close()
        return [line]

    return Stage("worlds", ("blueprints",), lambda made: domain.worlds, make)


def linked(apps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blueprints, as JSON, of which each refers to the one before it.

    The first entity of an app that people can add to gets a field with the id of a row of the first
    searchable entity of the app before, so that references lead through all apps. An app without
    such an entity stays as it is.
    """
    found: list[dict[str, Any]] = []
    for app in apps:
        before = Blueprint.model_validate(found[-1]) if found else None
        found.append(app if before is None else _referring(app, before))
    return found


def _referring(app: dict[str, Any], before: Blueprint) -> dict[str, Any]:
    blueprint = Blueprint.model_validate(app)
    targets = [name for name, entity in before.entities.items() if _reachable(entity)]
    sources = [
        name
        for name, entity in blueprint.entities.items()
        if _reachable(entity) and "create" in entity.endpoints
    ]
    if not targets or not sources:
        return app
    field, entity = f"{targets[0]}_id", blueprint.entities[sources[0]]
    if field in entity.fields:
        return app
    reference = {"type": "integer", "refers": f"{before.app}.{targets[0]}"}
    entities = {**app["entities"]}
    fields = {**entities[sources[0]]["fields"], field: reference}
    entities[sources[0]] = {**entities[sources[0]], "fields": fields}
    return {**app, "entities": entities}


def _reachable(entity: Entity) -> bool:
    return bool(entity.owner and entity.search and "search" in entity.endpoints)
