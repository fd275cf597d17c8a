"""What a training run can supply, and so which parts of the learning library a recipe can use.

A part declares what it needs; a run meets every need but those in `UNMET`, some of them only where
the environment declares a capability (see `method.check_declared`). What needs more is a function
to be called in a loop of one's own: `palaestra list` hides it unless asked for all, and a recipe
that names it is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.algorithms import ALGORITHMS, Algorithm, Method
from palaestra.learning.component import Component, Kind, Need, components

UNMET: dict[Need, tuple[str, str]] = {
    Need.BELIEF: (
        "nothing asks for the probability of a known answer after each turn",
        "compare the rule on a trace instead (`palaestra compare`)",
    ),
    Need.CONTRIBUTION: (
        "no progress model is trained beside the policy",
        "train one (learning/critics/progress.py) in a loop of your own",
    ),
    Need.TREE: (
        "rollouts of a task do not share the beginnings of their episodes",
        "make them by a tree search, and call it on the recorded episodes",
    ),
    Need.SNAPSHOT: (
        "every episode starts at its beginning",
        "restore the chosen snapshots in a loop of your own",
    ),
    Need.ERROR: (
        "nothing says how wrong a model is on each task",
        "call it with histories that hold errors, as recipes/classical/waker.py does",
    ),
    Need.SKILL: (
        "tasks do not say which skill they exercise, and nothing generates more of them",
        "call it with successes and attempts by skill",
    ),
    Need.PREFERENCE: (
        "no stage learns from pairs or labels",
        "call it on recorded episodes; `palaestra agents learn policy` does, by step-dpo",
    ),
    Need.ATTEMPT: (
        "each task is demonstrated once",
        "call it on recorded groups of episodes",
    ),
    Need.HINT: (
        "no prompt holds a hint",
        "call it on recorded episodes whose prompts do",
    ),
    Need.COMMAND: (
        "no agent is told the return that is asked for",
        "call it on recorded episodes, and tell your agent commands",
    ),
    Need.ACTION_VALUE: (
        "a run's critics judge states, not replies or tokens",
        "train this one in a loop of your own",
    ),
}
"""What a training run lacks, and what to do instead."""


def lack(needs: Collection[Need]) -> str | None:
    """In one phrase, what keeps a recipe from using a part with these needs; None if nothing."""
    unmet = _unmet(needs)
    return None if unmet is None else f"{unmet}: {UNMET[unmet][0]}"


def refuse_unmet(needs: Collection[Need], who: str) -> None:
    """Raise RecipeError where a training run cannot meet one of the needs of `who`."""
    unmet = _unmet(needs)
    if unmet is not None:
        reason, remedy = UNMET[unmet]
        raise RecipeError(
            f"{who} needs {unmet}, which a training run cannot supply: {reason}; {remedy}."
        )


def named(name: str) -> Algorithm:
    """The algorithm of that name, if it is one that a recipe can name.

    Raises:
        RecipeError: it is a part that no training run can use.
        UnknownName: there is none.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    for kind in Kind:
        if name in (found := components(kind)):
            refuse_unmet(found[name].needs, f"rl.algorithm = '{name}'")
    raise UnknownName("algorithm", name, algorithms())


def algorithms() -> list[str]:
    """The names that a recipe's `rl.algorithm` can take."""
    return [name for name, found in ALGORITHMS.items() if lack(Method(found).needs) is None]


def parts(kind: Kind) -> dict[str, Component]:
    """The parts of a kind, by name, that a recipe can use."""
    return {name: part for name, part in components(kind).items() if lack(part.needs) is None}


def _unmet(needs: Collection[Need]) -> Need | None:
    return next((need for need in UNMET if need in needs), None)
