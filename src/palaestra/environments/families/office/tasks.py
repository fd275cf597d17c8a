"""The tasks of the family: settings, and pairs of twins."""

from __future__ import annotations

import random
from functools import cache, lru_cache

from palaestra.core.task import Split
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.deeds import deeds
from palaestra.environments.families.apps.composing.goal import Atom
from palaestra.environments.families.apps.drawing import WORLDS, Drawn
from palaestra.environments.families.apps.population import world_template
from palaestra.environments.families.apps.setting import Setting
from palaestra.environments.families.apps.stock import OFFICE, stock_app
from palaestra.environments.families.apps.twins import TWINS, drawn_twins
from palaestra.environments.families.office.colleagues_app import colleagues_app
from palaestra.environments.families.office.fact_goals import AskColleague, Told
from palaestra.environments.families.office.favour_goals import KINDS
from palaestra.environments.families.office.permission_goals import CHANGES, Agreed, Confided


@cache
def office() -> Setting:
    """Return the apps of a company, colleagues who answer, and goals that need them."""
    apps = [stock_app(name) for name in OFFICE]
    suite = Suite.of([*apps, colleagues_app(apps)])
    told = (Told(deed) for deed in deeds(suite, ids=False))
    return Setting(suite, (AskColleague(), *told, *(kind() for kind in KINDS)))


@cache
def permissions() -> tuple[Atom, ...]:
    """Return the kinds of goals that come as twins."""
    agreed = (Agreed(kind()) for kind in CHANGES)
    return (*agreed, *(Confided(deed) for deed in deeds(office().suite, ids=False)))


def twin(seed: int) -> Drawn:
    """Return the task of a seed, one of two twins; the seed says its split as in `drawn`."""
    number, split = divmod(seed, len(Split))
    return pair(number // TWINS, split)[number % TWINS]


@lru_cache(maxsize=64)
def pair(number: int, split: int) -> tuple[Drawn, ...]:
    """Draw two twins; neighbouring pairs are about agreement and about what is confided."""
    suite = office().suite
    template = world_template(suite, "small", len(Split) * (number % WORLDS) + split)
    rng = random.Random(f"office twins {number} {split}")
    kind = (Agreed, Confided)[number % 2]
    atoms = [atom for atom in permissions() if isinstance(atom, kind)]
    return drawn_twins(suite, template, lambda: rng.choice(atoms), rng)
