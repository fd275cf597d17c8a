"""A team in an evaluation: its environment, its agents and its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from palaestra.environments.teams.team_file import load


class Teaming(NamedTuple):
    """A team in the terms in which an evaluation knows environments, agents and models."""

    knob: str  # for the id of the environment
    agent: str  # `players`, with the agents of members as options
    roles: Mapping[str, str]  # the model of each member that has its own


def teamed(name: str) -> Teaming:
    """Return the team of a template or a file; raises like `team_file.load`."""
    members = load(name).players
    agents = [
        f"{member}={quote(one.agent, safe=':')}"
        for member, one in members.items()
        if one.agent != "direct"
    ]
    roles = {member: one.model for member, one in members.items() if one.model is not None}
    query = f"?{'&'.join(agents)}" if agents else ""
    return Teaming(f"team={name}", f"players{query}", roles)


def with_knob(id: str, knob: str) -> str:
    """Return the id of an environment with a knob more."""
    return f"{id}{'&' if '?' in id else '?'}{knob}"
