"""The parts of the learning library that a recipe can use.

A part declares its needs. A run meets every need except those in `UNMET`, some only if the
environment declares a capability (see `method.check_declared`). Other parts are functions for your
own training loop: `palaestra list` hides them without --all, and recipes cannot name them.
"""

from __future__ import annotations

from collections.abc import Collection

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.methods.algorithms import ALGORITHMS, Algorithm, Method
from palaestra.learning.methods.component import Component, Kind, Need, components

UNMET: dict[Need, tuple[str, str]] = {
    Need.SNAPSHOT: (
        "every episode starts at its beginning",
        "restore the chosen snapshots in your own loop",
    ),
    Need.ERROR: (
        "nothing measures the error of a model on each task",
        "call it with histories that hold errors, as recipes/classical/waker.py does",
    ),
    Need.SKILL: (
        "tasks do not say which skill they exercise, and nothing generates more of them",
        "call it with successes and attempts by skill",
    ),
    Need.ACTION_VALUE: (
        "a run's critics judge states, not replies or tokens",
        "train this one in your own loop",
    ),
}
"""Needs that a training run lacks: the reason, and what to do instead."""


def lack(needs: Collection[Need]) -> str | None:
    """Return a phrase that says why a recipe cannot use a part with these needs, or None."""
    unmet = _unmet(needs)
    return None if unmet is None else f"{unmet}: {UNMET[unmet][0]}"


def refuse_unmet(needs: Collection[Need], who: str) -> None:
    """Raise RecipeError if a training run cannot meet one of the needs of `who`."""
    unmet = _unmet(needs)
    if unmet is not None:
        reason, remedy = UNMET[unmet]
        raise RecipeError(
            f"{who} needs {unmet}, which a training run cannot supply: {reason}; {remedy}."
        )


def named(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises:
        RecipeError: it is a part that no training run can use.
        UnknownName: no such algorithm.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    for kind in Kind:
        if name in (found := components(kind)):
            refuse_unmet(found[name].needs, f"rl.algorithm = '{name}'")
    raise UnknownName("algorithm", name, algorithms())


def algorithms() -> list[str]:
    """Return the names that a recipe's `rl.algorithm` can take."""
    return [name for name, found in ALGORITHMS.items() if lack(Method(found).needs) is None]


def parts(kind: Kind) -> dict[str, Component]:
    """Return the parts of a kind that a recipe can use, by name."""
    return {name: part for name, part in components(kind).items() if lack(part.needs) is None}


def _unmet(needs: Collection[Need]) -> Need | None:
    return next((need for need in UNMET if need in needs), None)
