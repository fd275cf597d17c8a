"""How many sessions live at once: fewer where every world is a Java virtual machine of its own.

Such a machine takes seconds of a core to start, and some hundred MB. Where nobody says how many
sessions live at once, there are as many as start in good time; who says more gets them, and one
sentence about what that costs.
"""

from __future__ import annotations

from palaestra.environments.registry import environment_class
from palaestra.experiment.machine import cores
from palaestra.experiment.recipe import Recipe

USUAL = 64
PER_CORE = 8  # Java virtual machines that start in about half a minute


def most(environment: str) -> int | None:
    """The most worlds that start in good time here; None: they are not started at all."""
    return PER_CORE * cores() if "java" in environment_class(environment)[0].programs else None


def usual(environment: str) -> int:
    """Sessions at once where nobody says how many."""
    return min(USUAL, most(environment) or USUAL)


def note(environment: str, sessions: int, option: str) -> str | None:
    """What so many sessions at once cost there; None: nothing to speak of.

    Args:
        environment: an id.
        sessions: at once.
        option: how their number is set, to be followed by it: `--concurrency `.
    """
    bound = most(environment)
    if bound is None or sessions <= bound:
        return None
    return (
        f"'{environment}' starts a Java virtual machine for each of {sessions} episodes at once, "
        f"more than start in good time on this machine: {option}{bound} is likely quicker"
    )


def fitted(recipe: Recipe) -> Recipe:
    """The recipe with the usual number of sessions, where it does not say how many."""
    if "concurrency" in recipe.model_fields_set:
        return recipe
    return recipe.model_copy(update={"concurrency": usual(recipe.environment.id)})
