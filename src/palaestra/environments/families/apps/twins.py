"""Twins: tasks 2k and 2k + 1 of a split, of which the rules forbid one and permit the other.

Words, tools, world and rows are the same, but for one value of the rules, or for what the person
says when asked (`composing/forbidden.py`). Which of the two comes first is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.forbidden import twin_of
from palaestra.environments.families.apps.composing.gate import called, rejection
from palaestra.environments.families.apps.composing.goal import Atom, Goal
from palaestra.environments.families.apps.composing.operators import FORBIDDEN
from palaestra.environments.families.apps.drawing import TRIES, Drawn
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.scenarios import structures_of, suite_of, template_of
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.world import World

TWINS = 2


def twin(kind: str, seed: int) -> Drawn:
    """Return the task of a seed, which says its split as in `drawn`.

    Args:
        kind: empty, or one of the suffixes of ids.
        seed: as those of a `TaskSet`.
    """
    number, split = divmod(seed, len(Split))
    return pair(kind, number // TWINS, split)[number % TWINS]


@lru_cache(maxsize=64)
def pair(kind: str, number: int, split: int) -> tuple[Drawn, ...]:
    """Draw two twins, both of which pass the gate."""
    seed = len(Split) * number + split
    suite = suite_of(kind, seed)
    template, rng = template_of(suite, kind, seed), random.Random(f"twins {kind} {seed}")
    structures = structures_of(suite, kind)
    return drawn_twins(suite, template, lambda: structures.draw(FORBIDDEN, rng), rng)


def drawn_twins(
    suite: Suite, template: Template, choose: Callable[[], Atom], rng: random.Random
) -> tuple[Drawn, ...]:
    """Draw two tasks of one goal, forbidden and permitted, in a random order.

    Args:
        suite: the apps.
        template: the world, without what the goal writes into it.
        choose: returns a kind of goal that draws the slots of the forbidden twin.
        rng: draws the values.

    Raises:
        EnvironmentFault: of no draw both twins passed the gate.
    """
    for _ in range(TRIES):
        atom = choose()
        with closing(World(suite, template, START)) as world:
            slots = atom.draw(world, rng)
        if slots is None:
            continue
        wording = rng.randrange(len(atom.words))
        tasks = [Composition((Goal(atom, s, wording),)) for s in (slots, twin_of(slots))]
        worlds = [World(suite, task.planted(template), START) for task in tasks]
        pairs = list(zip(worlds, tasks, strict=True))
        if all(rejection(world, task, rng) is None for world, task in pairs):
            apis = [api for world, task in pairs for api in called(world, task, rng)]
            needed = tuple(dict.fromkeys(apis))
            made = [
                Drawn(suite, task.planted(template), task, task.ways(world), needed)
                for world, task in pairs
            ]
            return tuple(rng.sample(made, TWINS))
        for world in worlds:
            world.close()
    raise EnvironmentFault("reset", f"no twins passed the gate in {TRIES} draws")
