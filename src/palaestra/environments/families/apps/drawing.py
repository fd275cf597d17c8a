"""The tasks of a level: drawn from a seed, in a world that belongs to a split."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.composing.composition import (
    LEVELS,
    Composer,
    Composition,
)
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.events import Event
from palaestra.environments.families.apps.generated import generated_app
from palaestra.environments.families.apps.population import START, populate, world_template
from palaestra.environments.families.apps.setting import Setting, core, core_atoms
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.stock import stock_app
from palaestra.environments.families.apps.world import World

CHALLENGE, NEW = "challenge", "new"  # suffixes of levels
UNSEEN = "calendar"  # the app about which only `challenge` asks, of those of `core`
WORLDS = 64  # small worlds of a split
TRIES = 200  # draws until one passes the gate


@dataclass(frozen=True)
class Drawn:
    """A task that was drawn, with what every episode of it needs."""

    suite: Suite
    template: Template
    task: Composition
    ways: list[Wanted]
    needed: tuple[str, ...]  # the APIs that the reference calls
    events: tuple[Event, ...] = ()  # what happens by itself

    def open(self) -> World:
        """Return its world, in which nothing has happened."""
        return World(self.suite, self.template, START, self.events, MAIN)

    def variants(self) -> list[Composition]:
        """Return the task, and the same with its goals' alternatives."""
        world = self.open()
        found = self.task.variants(world)
        world.close()
        return found


@lru_cache(maxsize=512)
def drawn(level: str, kind: str, seed: int, setting: Setting | None = None) -> Drawn:
    """Draw the task of a seed.

    Args:
        level: how many goals, see `LEVELS`.
        kind: empty, or one of the suffixes.
        seed: says which split it belongs to, as those of a `TaskSet` do.
        setting: the apps and goals; `core` unless given. With `NEW`, generated apps stand beside
            its apps, and goals are about those; of `core` only `supervisor` stands beside.
    """
    number, split = divmod(seed, len(Split))
    if kind == NEW:
        known = [stock_app("supervisor")] if setting is None else setting.suite.apps.values()
        suite = Suite.of([*known, *(new := new_apps(seed))])
        template, names = populate(suite, "small", seed), {app.name for app in new}
        made = core_atoms(suite) if setting is None else tuple(crud_atoms(suite, ids=False))
        atoms = tuple(atom for atom in made if atom.apps & names)
    else:
        suite, atoms = (setting or core()).suite, (setting or core()).atoms
        template = world_template(suite, "small", len(Split) * (number % WORLDS) + split)
    if setting is None and kind != NEW:
        atoms = tuple(atom for atom in atoms if (UNSEEN in atom.apps) == (kind == CHALLENGE))
    composer = Composer(atoms)
    untouched, rng = World(suite, template, START), random.Random(f"apps {level} {kind} {seed}")
    for _ in range(TRIES):
        task = composer.draw(untouched, LEVELS[level], rng)
        if task is None:
            continue
        planted = task.planted(template)
        with closing(World(suite, planted, START)) as world:
            if rejection(world, task, rng) is not None:
                continue
            ran, _ = task.reference(world)
            needed = tuple(dict.fromkeys(call.api for call in ran.calls))
            untouched.close()
            return Drawn(suite, planted, task, task.ways(world), needed)
    raise EnvironmentFault("reset", f"no task of '{level}' passed the gate for the seed {seed}")


def new_apps(seed: int) -> list[App]:
    """Return two generated apps of different names."""
    first = generated_app(2 * seed)
    for number in itertools.count(2 * seed + 1):
        if (second := generated_app(number)).name != first.name:
            return [first, second]
    raise AssertionError
