"""All challenges, by category; names are unique."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache

from palaestra.core.errors import UnknownName
from palaestra.core.task import Split
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


def category_of(challenge: str) -> str:
    """Return the category of a challenge."""
    return next(name for name, makers in CATEGORIES.items() if challenge in makers)


def chosen(name: str, seed: int) -> str:
    """Return the challenge of a task; those of a mixture take turns, in each split.

    Raises:
        UnknownName: there is no such challenge or mixture.
    """
    if name in CHALLENGES:
        return name
    if name not in (*CATEGORIES, ALL):
        raise UnknownName("challenge", name, names())
    among = [*(CHALLENGES if name == ALL else CATEGORIES[name])]
    return among[seed // len(Split) % len(among)]


@lru_cache(maxsize=256)
def made(challenge: str, seed: int) -> Challenge:
    """Return the challenge of a task's seed."""
    return CHALLENGES[challenge](random.Random(f"{challenge} {seed}"))
