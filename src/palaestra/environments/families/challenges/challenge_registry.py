"""All challenges, by category; names are unique."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.families.challenges.basics_challenges import BASICS
from palaestra.environments.families.challenges.challenge import Challenge, Maker
from palaestra.environments.families.challenges.cognition_challenges import COGNITION
from palaestra.environments.families.challenges.input_challenges import INPUT
from palaestra.environments.families.challenges.play_challenges import PLAY
from palaestra.environments.families.challenges.workflow_challenges import WORKFLOW

CATEGORIES: Mapping[str, Mapping[str, Maker]] = {
    "basics": BASICS, "input": INPUT, "cognition": COGNITION, "workflow": WORKFLOW, "play": PLAY,
}  # fmt: skip
ALL = "all"
CHALLENGES: Mapping[str, Maker] = {
    name: maker for makers in CATEGORIES.values() for name, maker in makers.items()
}


def names() -> list[str]:
    """Return all names of environments: challenges, categories and `all`."""
    return [*CHALLENGES, *CATEGORIES, ALL]


@dataclass(frozen=True, slots=True)
class ChallengeTasks(TaskSet):
    """The tasks of a challenge or mixture; parameters say which one it is, and its category."""

    def _parameters(self, split: Split, index: int) -> Mapping[str, Any]:
        return parameters_of(_name(self.environment), index)


def parameters_of(name: str, index: int) -> dict[str, str]:
    """Return the challenge and the category of a task; those of a mixture take turns.

    Args:
        name: of a challenge, a category, or `all`.
        index: of the task in its split.

    Raises:
        UnknownName: there is no such name.
    """
    if name not in names():
        raise UnknownName("challenge", name, names())
    among = [*CATEGORIES.get(name, CHALLENGES)] if name not in CHALLENGES else [name]
    challenge = among[index % len(among)]
    category = next(each for each, makers in CATEGORIES.items() if challenge in makers)
    return {"challenge": challenge, "category": category}


def _name(environment: str) -> str:
    """Return the name in an environment's id, without version and knobs."""
    return environment.partition("/")[2].partition("?")[0].partition("@")[0]


def challenge_of(task: Task) -> str:
    """Return the challenge of a task.

    Raises:
        InputError: its parameters name another one than its number does.
    """
    known = parameters_of(_name(task.environment), task.seed // len(Split))
    if task.parameters and {**task.parameters} != known:
        raise InputError(
            f"The parameters of '{task.id}' are {dict(task.parameters)}, but this task of "
            f"'{task.environment}' has {known}; choose a challenge by its name instead."
        )
    return known["challenge"]


@lru_cache(maxsize=256)
def made(challenge: str, seed: int) -> Challenge:
    """Return the challenge of a task's seed."""
    return CHALLENGES[challenge](random.Random(f"{challenge} {seed}"))
