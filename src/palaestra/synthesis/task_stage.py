"""Tasks: composed bottom-up from goals, each behind the gate, and worded by a person's templates.

With a model, the words are its own, and a committee reviews them (`committee.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from palaestra.core.model import Model
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.composition import Composer, Composition
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.environments.families.synthesised.lines import (
    SIZE,
    Worded,
    suite_of,
    world_of,
    written,
)
from palaestra.environments.families.synthesised.linked_goals import linked_atoms
from palaestra.environments.families.synthesised.operated_goals import (
    RULES,
    TOLD,
    operated,
    operated_line,
)
from palaestra.environments.families.synthesised.user_manners import drawn_manner
from palaestra.store.codec import JSON
from palaestra.synthesis.committee import reworded
from palaestra.synthesis.domain_file import Domain, Explore, Review
from palaestra.synthesis.exploration import beginnings, explored
from palaestra.synthesis.stage_files import Stage

TRIES = 60  # draws for one task


def task_stage(domain: Domain, model: Model | None) -> Stage:
    """Return the stage that makes tasks.

    Its lines: `world`, `goals` (null if none passed), `instruction`, `rejected` (number of draws by
    reason), `rounds` of reviews.
    """

    async def make(made: Made, number: int) -> Sequence[JSON]:
        at = number % len(made["worlds"])
        line = made["worlds"][at]
        suite = suite_of(line)
        world, rng = world_of(line, suite), random.Random(f"task {domain.seed} {number}")
        try:
            task, rejected = composed(world, domain.goals, rng)
            found: dict[str, JSON] = {"world": at, "goals": None, "rejected": rejected}
            if task is None:
                return [found]
            if model is not None:
                worded = await reworded(
                    model, domain.about, task, world, domain.review or Review(), rng
                )
                rejected.update(worded.rejected)
                if worded.text is None:
                    return [found]
                task = Worded(task.goals, words=worded.text)
            elif domain.personas:
                manner = drawn_manner(f"task {domain.seed} {number}")
                task = Worded(task.goals, words=manner.asks(task.instruction))
            return [{**found, "goals": written(task), "instruction": task.instruction}]
        finally:
            world.close()

    return Stage("tasks", ("worlds",), lambda made: domain.tasks, make)


def exploration_stage(domain: Domain, model: Model) -> Stage:
    """Return the stage that makes tasks of what a model does by itself; lines as of `tasks`.

    An item has a line for each task, and for each beginning that was rejected.
    """
    explore = domain.explore or Explore()

    async def make(made: Made, number: int) -> Sequence[JSON]:
        at = number % len(made["worlds"])
        line = made["worlds"][at]
        suite = suite_of(line)
        world, rng = world_of(line, suite), random.Random(f"explore {domain.seed} {number}")
        fork = world.fork()
        try:
            calls, rejected = await explored(model, fork, explore.calls, rng)
            lines: list[JSON] = []
            for task, reason in beginnings(calls, world, rng):
                if task is None:
                    rejected[reason] += 1
                    continue
                worded = await reworded(
                    model, domain.about, task, world, domain.review or Review(), rng
                )
                rejected += worded.rejected
                if worded.text is not None:
                    goals = {"goals": written(task), "instruction": worded.text}
                    lines.append({"world": at, **goals, "rejected": {}})
            if rejected:
                lines.append({"world": at, "goals": None, "rejected": dict(rejected)})
            return lines
        finally:
            fork.close()
            world.close()

    return Stage("explorations", ("worlds",), lambda made: explore.explorations, make)


def told_stage(domain: Domain) -> Stage:
    """Return the stage that makes tasks whose values the user tells; lines as of `tasks`."""

    async def make(made: Made, number: int) -> Sequence[JSON]:
        at = number % len(made["worlds"])
        rng = random.Random(f"told {domain.seed} {number}")
        manner = f"told {domain.seed} {number}" if domain.personas else ""
        return [{"world": at, **line} for line in _through(TOLD, made["worlds"][at], rng, manner)]

    return Stage("told", ("worlds",), lambda made: domain.told, make)


def twin_stage(domain: Domain) -> Stage:
    """Return the stage that makes pairs of tasks beside rules; two lines as of `tasks` each.

    One of the two is forbidden. Which of them comes first is drawn.
    """

    async def make(made: Made, number: int) -> Sequence[JSON]:
        at = number % len(made["worlds"])
        rng = random.Random(f"twins {domain.seed} {number}")
        return [{"world": at, **line} for line in _through(RULES, made["worlds"][at], rng)]

    return Stage("twins", ("worlds",), lambda made: domain.twins, make)


def _through(
    operator: str, line: Mapping[str, Any], rng: random.Random, manner: str = ""
) -> list[dict[str, JSON]]:
    """Return lines of one drawn goal through an operator, of which all pass the gate.

    `manner` is what the user's is drawn from, if they have one. The first line has the reasons of
    rejection of earlier draws.
    """
    suite = suite_of(line, user=True)
    rejected: Counter[str] = Counter()
    kinds = (False, True) if operator == RULES else (False,)
    with closing(world_of(line, suite)) as world:
        for _ in range(TRIES):
            seed = rng.getrandbits(32)
            tasks = [operated(world, operator, seed, permitted=one, manner=manner) for one in kinds]
            found = [task for task in tasks if task is not None]
            if len(found) < len(kinds):
                rejected["a goal has nothing to be about, or no rule or too few values fit"] += 1
                continue
            reasons = [_rejection(suite, line, task, rng) for task in found]
            if reason := next(filter(None, reasons), None):
                rejected[reason.partition(":")[0]] += 1
                continue
            pairs = list(zip(found, kinds, strict=True))
            lines = [operated_line(operator, seed, task, one, manner) for task, one in pairs]
            made = [{**one, "rejected": {}} for one in rng.sample(lines, len(lines))]
            return [{**made[0], "rejected": dict(rejected)}, *made[1:]]
    return [{"goals": None, "rejected": dict(rejected)}]


def _rejection(
    suite: Suite, line: Mapping[str, Any], task: Composition, rng: random.Random
) -> str | None:
    """Return why the gate rejects a task in its world, with what it plants there."""
    template = task.planted(world_template(suite, SIZE, line["seed"]))
    with closing(World(suite, template, START)) as planted:
        return rejection(planted, task, rng)


def composed(
    world: World, goals: int, rng: random.Random
) -> tuple[Composition | None, dict[str, int]]:
    """Draw a task that passes the gate; return it, or None, and the reasons of rejection."""
    composer = Composer(linked_atoms(world.suite))
    rejected: Counter[str] = Counter()
    for _ in range(TRIES):
        task = composer.draw(world, goals, rng)
        if task is None:
            rejected["a goal has nothing to be about, or two goals ask for an answer"] += 1
        elif reason := rejection(world, task, rng):
            rejected[reason.partition(":")[0]] += 1
        elif order_matters(world, task):
            rejected["its goals are not the same in another order"] += 1
        else:
            return task, dict(rejected)
    return None, dict(rejected)


def order_matters(world: World, task: Composition) -> bool:
    """Return whether the goals, the last one first, leave something else behind.

    Such as counting what another goal changes: of an agent that did the other goal first, nobody
    could say what it should have counted.
    """
    _, wanted = task.reference(world)
    ran, other = Composition(task.goals[::-1]).reference(world)
    return bool(ran.refused) or (wanted.rows, wanted.answer) != (other.rows, other.answer)
