"""One goal in one world, alone and through each operator, so that operators can be compared.

The goal, its values and wording, the world and what is wanted are the same; only where a value
stands, or what stands around the goal, differs: task i of `apps/goal-hidden` is task i of
`apps/goal`, with the value in a mail. In half of the tasks of `apps/goal-forbidden`, rules beside
the goal forbid it. In those of `-deadline`, `-wait` and `-noise` the world has a clock: the
goal is due before a time, or when a mail has come, or other mails come all the time. For-each has
no such task, since it changes other rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache, lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.branch import Branch
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.forbidden import Forbidden, twin_of
from palaestra.environments.families.apps.composing.gaps import Ask, Chain, Hidden
from palaestra.environments.families.apps.composing.gate import called, rejection
from palaestra.environments.families.apps.composing.given_goal import GivenGoal
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal
from palaestra.environments.families.apps.composing.operators import FORBIDDEN, Structures
from palaestra.environments.families.apps.drawing import TRIES, Drawn
from palaestra.environments.families.apps.events import Every
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.scenarios import structures_of, suite_of, template_of
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.timed.clock_app import slow_suite
from palaestra.environments.families.apps.timed.timed_operators import BeforeTime, WhenTold
from palaestra.environments.families.apps.timed.timed_tasks import mails
from palaestra.environments.families.apps.world import World

GOAL = "goal"
CLOCKED = ("deadline", "wait", "noise")
THROUGH = ("chain", "branch", "hidden", "ask", FORBIDDEN, *CLOCKED)
"""The operators through which a goal is given, which are the suffixes of the ids."""

FIRST_NOISE = (
    1,
    10,
)  # seconds until the first mail of somebody who has nothing to do with the goal
NOISE = (30, 60)  # seconds between such mails


@cache
def clocked_suite() -> Suite:
    """Return the apps of the tasks with a clock."""
    return slow_suite(suite_of("", 0).apps.values())


def one_goal(through: str, seed: int) -> Drawn:
    """Return the task of a seed, which says its split as in `drawn`.

    Args:
        through: one of `THROUGH`, or empty: the goal alone.
        seed: as those of a `TaskSet`.
    """
    return every_way(seed)[through or GOAL]


@lru_cache(maxsize=128)
def every_way(seed: int) -> Mapping[str, Drawn]:
    """Draw one goal that can be given alone and through each operator, and return all of these."""
    suite = suite_of("", seed)
    template, rng = template_of(suite, "", seed), random.Random(f"one goal {seed}")
    structures = structures_of(suite, "")
    for _ in range(TRIES):
        with closing(World(suite, template, START)) as world:
            goals = _goals(world, structures, rng)
        if goals is None:
            continue
        made: dict[str, Drawn] = {}
        for name, goal in goals.items():
            if (one := _drawn(name, template, goal, rng)) is None:
                break
            made[name] = one
        else:
            return made
    raise EnvironmentFault("reset", f"no goal passed the gate in every way for the seed {seed}")


def _goals(world: World, structures: Structures, rng: random.Random) -> dict[str, Goal] | None:
    """Draw a goal, alone and through each operator; None if one of them does not fit it."""
    chain = structures.draw("chain", rng)
    assert isinstance(chain, Chain)
    slots = chain.draw(world, rng)
    if slots is None:
        return None
    goal, path = slots["goal"], slots["path"]
    given = GivenGoal(goal, path, goal.atom.gaps(goal.slots)[path])
    first = rng.random() < 0.5  # the right branch
    branch, rules = structures.draw("branch", rng), structures.draw(FORBIDDEN, rng)
    assert isinstance(branch, Branch) and isinstance(rules, Forbidden)
    atoms: dict[str, Atom] = {
        GOAL: given,
        "branch": Branch(branch.source, *((given, branch.no) if first else (branch.yes, given))),
        "hidden": Hidden(given),
        "ask": Ask(given),
        FORBIDDEN: Forbidden(given, rules.besides),
        "deadline": BeforeTime(given),
        "wait": WhenTold(given),
        "noise": given,
    }
    drawn = {name: atom.draw(world, rng) for name, atom in atoms.items()}
    found = {name: Goal(atoms[name], own) for name, own in drawn.items() if own is not None}
    if len(found) < len(atoms) or (drawn["branch"] or {})["right"] != ("yes" if first else "no"):
        return None
    if rng.random() < 0.5:
        found[FORBIDDEN] = Goal(atoms[FORBIDDEN], twin_of(found[FORBIDDEN].slots))
    return {"chain": Goal(chain, slots), **found}  # what is rejected most often comes first


def _drawn(name: str, template: Template, goal: Goal, rng: random.Random) -> Drawn | None:
    """Return a task of one goal if it passes the gate."""
    suite, task = clocked_suite() if name in CLOCKED else suite_of("", 0), Composition((goal,))
    with closing(World(suite, template, START)) as world:
        if name == "noise":
            timing = Every(rng.randint(*FIRST_NOISE), rng.randint(*NOISE))
            task = replace(task, noise=tuple(mails(world, goal.slots, [timing], rng)))
        events = task.events(world)
    planted = task.planted(template)
    with closing(World(suite, planted, START, events, MAIN)) as world:
        if rejection(world, task, rng) is not None:
            return None
        needed = tuple(dict.fromkeys(called(world, task, rng)))
        return Drawn(suite, planted, task, task.ways(world), needed, events)
