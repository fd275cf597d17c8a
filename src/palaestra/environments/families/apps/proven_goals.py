"""Kinds of goals of one's own are tried once, when their environment is made.

The gate keeps single draws from agents; a kind of which no draw passes would never be asked for,
without a word. Such a kind is refused with the gate's reason: that its verdict accepts its near
misses, for example.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache

from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.families.apps.composing.composition import Composer
from palaestra.environments.families.apps.composing.crud_atoms import EntityAtom
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import Atom
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.setting import Setting
from palaestra.environments.families.apps.world import World

WORLDS, DRAWS = 3, 5  # worlds, and draws in each, until one passes


@cache
def refuse_unproven(setting: Setting) -> None:
    """Raise InputError for a kind of goal of which the gate rejects every draw.

    Goals over any entity are not tried, nor is a kind refused of which nothing is drawn: its worlds
    may be rare.
    """
    for atom in setting.atoms:
        if isinstance(atom, EntityAtom):
            continue
        reasons = Counter[str]()
        for reason in _reasons(setting, atom):
            if not reason:
                break
            reasons[reason.partition(": {")[0]] += 1
        else:
            if reasons:
                most, count = reasons.most_common(1)[0]
                raise InputError(
                    f"The goal '{atom.name}' passes the gate in none of {reasons.total()} draws, "
                    f"in {count} because {most}; change its `steps`, its `near_misses`, or what "
                    "texts must mention (`mentions`)."
                )


def _reasons(setting: Setting, atom: Atom) -> Iterator[str]:
    """Yield why the gate rejects draws of a kind of goal; empty for one that passes."""
    for number in range(WORLDS):
        template = world_template(setting.suite, "small", len(Split) * number)
        rng = random.Random(number)
        with closing(World(setting.suite, template, START)) as world:
            for _ in range(DRAWS):
                task = Composer([atom]).draw(world, 1, rng)
                if task is None:
                    continue
                planted = task.planted(template)
                with closing(World(setting.suite, planted, START)) as own:
                    yield rejection(own, task, rng) or ""
