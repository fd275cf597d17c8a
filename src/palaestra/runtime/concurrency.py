"""Default concurrency of sessions: lower where each session starts a large process.

An environment on a Java virtual machine takes seconds of a core to start, and some hundred MB. So
does an agent that is a command, if it uses a framework. The default is as many sessions as start
in good time; a higher number is accepted, with a note about its cost.
"""

from __future__ import annotations

from palaestra.environments.registry import spec
from palaestra.gateway.program_agents import CommandAgent
from palaestra.runtime.machine import cores

USUAL = 64
PER_CORE = 8  # Java virtual machines that start in about half a minute
PROGRAMS = 4  # commands per core; one with a framework takes some 270 MB and 2 s of a core


def most(environment: str, agent: str = "") -> int | None:
    """Return the maximum sessions that start in good time here; None if there is no limit."""
    java = "java" in spec(environment).needs
    bounds = [PER_CORE * cores()] if java else []
    return min([*bounds, PROGRAMS * cores()] if _commanded(agent) else bounds, default=None)


def usual(environment: str, agent: str = "") -> int:
    """Return the default number of concurrent sessions."""
    return min(USUAL, most(environment, agent) or USUAL)


def note(environment: str, sessions: int, option: str, agent: str = "") -> str | None:
    """Return a sentence about the cost of that many concurrent sessions, or None.

    Args:
        environment: an id.
        sessions: their number.
        option: text that sets the number, to be followed by it: `--concurrency `.
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
