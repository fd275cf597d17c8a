"""Blueprints of apps: given in files, drawn, or written by a model.

A blueprint passes if it parses without contradictions, its app can be compiled, people can live
with it, and tasks can be asked about it. What a model wrote and did not pass is written anew, with
the reason (AgentScaler, Fang et al. 2025: environments from schemas; ours: the reasons, which are
those of the compiler).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.generated import blueprint_text
from palaestra.environments.families.apps.population import populate
from palaestra.environments.families.apps.stock import VERBS, stock_app
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.store.codec import JSON
from palaestra.synthesis.asking import ask, fenced
from palaestra.synthesis.domain_file import Domain, subjects
from palaestra.synthesis.stage_files import Stage

TRIES = 3  # of a model, at one blueprint
ENGINEER = "You design the data of small web services. Reply with one TOML file and nothing else."
WANTED = """\
Write the blueprint of one service for this domain: {about}
It is service {number} of {count}; others exist already: {others}.
The form, by an example:

{example}
Types of fields: text, email, phone, integer, money, boolean, time, date, choice (with `choices`), \
person. Each entity needs `about`, an `owner` and fields in `search`; names are of small letters, \
digits and underscores."""


def blueprint_stage(domain: Domain, model: Model | None) -> Stage:
    """Return the stage that makes blueprints: lines with `source`, `toml` and `rejected`."""

    async def make(made: Made, number: int) -> Sequence[JSON]:
        if number < len(domain.files):
            file = list(domain.files)[number]
            text = domain.files[file]
            check_blueprint(text, file)
            return [{"source": file, "toml": text, "rejected": {}}]
        if model is None:
            seed = domain.seed * 1000 + number
            text = blueprint_text(seed, subjects(domain))
            check_blueprint(text, f"the blueprint {number}")
            return [{"source": "drawn", "toml": text, "rejected": {}}]
        return [await _written(domain, model, number)]

    return Stage("blueprints", (), lambda made: domain.blueprints, make)


def check_blueprint(text: str, source: str) -> App:
    """Return the app of a blueprint that passes.

    Raises:
        InputError: it is no TOML or contradicts itself (the line is named), it has the name of an
            app that comes with palaestra, or no task can be asked about it.
    """
    app = App(parse(text, source))
    if app.name in VERBS:
        raise InputError(f"{source}: an app '{app.name}' comes with palaestra; rename it.")
    suite = Suite.of([stock_app("supervisor"), app])
    populate(suite, "small", 0)
    if not any(atom.table.startswith(f"{app.name}.") for atom in crud_atoms(suite)):
        raise InputError(
            f"{source}: no task can be asked about '{app.name}'; give an entity an `owner` and "
            "fields in `search`."
        )
    return app


def passed(blueprints: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the texts of blueprints that passed, of each name the first.

    Raises:
        InputError: none passed.
    """
    found: dict[str, str] = {}
    for one in blueprints:
        if one["toml"]:
            found.setdefault(parse(one["toml"]).app, one["toml"])
    if not found:
        *_, last = blueprints[-1]["rejected"]
        raise InputError(
            f"No blueprint of {blueprints[-1]['source']} passed ({last}) "
            "Name another model in a new folder, or give blueprints as 'files'."
        )
    return list(found.values())


async def _written(domain: Domain, model: Model, number: int) -> JSON:
    """Return the first blueprint of a model that passes, or the reasons why none did."""
    rejected: Counter[str] = Counter()
    rng = random.Random(f"blueprint {domain.seed} {number}")
    question = WANTED.format(
        about=domain.about,
        number=number + 1,
        count=domain.blueprints,
        others=", ".join(VERBS),
        example=blueprint_text(rng.randrange(1000)),
    )
    asked = question
    for _ in range(TRIES):
        text = fenced(await ask(model, ENGINEER, asked, rng.getrandbits(32)), "toml")
        try:
            check_blueprint(text, "the blueprint")
        except InputError as error:
            rejected[str(error)] += 1
            asked = f"{question}\n\nYou wrote:\n{text}\nIt was refused: {error}\nWrite it anew."
        else:
            return {"source": model.name, "toml": text, "rejected": dict(rejected)}
    return {"source": model.name, "toml": None, "rejected": dict(rejected)}
