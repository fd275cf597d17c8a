"""How many sessions live at once: fewer where each starts a large process of its own.

A world that is a Java virtual machine takes seconds of a core to start, and some hundred MB; so
does an agent that is a command, where it is made with a framework. Where nobody says how many
sessions live at once, there are as many as start in good time; who says more gets them, and one
sentence about what that costs.
"""

from __future__ import annotations

from palaestra.environments.registry import environment_class
from palaestra.experiment.machine import cores
from palaestra.experiment.recipe import Recipe
from palaestra.rollout.gateway.agent import CommandAgent

USUAL = 64
PER_CORE = 8  # Java virtual machines that start in about half a minute
PROGRAMS = 4  # a core: commands, of which a framework's takes some 270 MB and 2 s of a core


def most(environment: str, agent: str = "") -> int | None:
    """The most sessions that start in good time here; None: they start nothing large."""
    java = "java" in environment_class(environment)[0].programs
    bounds = [PER_CORE * cores()] if java else []
    return min([*bounds, PROGRAMS * cores()] if _commanded(agent) else bounds, default=None)


def usual(environment: str, agent: str = "") -> int:
    """Sessions at once where nobody says how many."""
    return min(USUAL, most(environment, agent) or USUAL)


def note(environment: str, sessions: int, option: str, agent: str = "") -> str | None:
    """What so many sessions at once cost there; None: nothing to speak of.

    Args:
        environment: an id.
        sessions: at once.
        option: how their number is set, to be followed by it: `--concurrency `.
        agent: its name.
    """
    bound = most(environment, agent)
    if bound is None or sessions <= bound:
        return None
    starts = f"'{environment}' starts a Java virtual machine"
    if bound != most(environment):
        starts = "the agent is a command, which is started"
    return (
        f"{starts} for each of {sessions} episodes at once, "
        f"more than start in good time on this machine: {option}{bound} is likely quicker"
    )


def _commanded(agent: str) -> bool:
    return agent.partition("?")[0] == CommandAgent.name


def fitted(recipe: Recipe) -> Recipe:
    """The recipe with the usual number of sessions, where it does not say how many."""
    if "concurrency" in recipe.model_fields_set:
        return recipe
    found = usual(recipe.environment.id, recipe.agent.chosen)
    return recipe.model_copy(update={"concurrency": found})
