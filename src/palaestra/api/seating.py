"""Who plays for each player, with which model, and which teams act, as an evaluation knows it.

Everybody is a player: members of a team as well. So all of them together are the agent `players`
with options, models by role, and a knob of the environment for its teams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

from palaestra.core.errors import InputError
from palaestra.environments.teams.team_file import load
from palaestra.environments.teams.team_knob import knob_value

EXAMPLE = "NAME=AGENT@MODEL, such as player0=react@smollm2-135m"


class AgentAndModel(NamedTuple):
    """What plays for a player; a missing agent or model is empty."""

    agent: str
    model: str

    @classmethod
    def parse(cls, option: str, player: str, text: str) -> AgentAndModel:
        """Parse AGENT@MODEL, of which either part may be missing.

        Args:
            option: that has the text, for the error.
            player: for whom it plays.
            text: `react@smollm2-135m`, `react` or `@smollm2-135m`.

        Raises:
            InputError: it is empty.
        """
        agent, _, model = text.partition("@")
        if not (player and (agent or model)):
            raise InputError(f"{option} {player}={text} names nobody; write {EXAMPLE}.")
        return cls(agent, model)


class Seating(NamedTuple):
    """The players of a request, in the terms in which an evaluation knows them."""

    agent: str  # `players`, with the agents of players as options
    roles: Mapping[str, str]  # the model of each player that has its own
    knob: str  # of the environment, for its teams; empty without any


def seated(
    players: Mapping[str, str],
    teams: Mapping[str, str],
    roles: Mapping[str, str],
    name: Callable[[str], str] = str,
) -> Seating:
    """Return the seating of a request.

    Args:
        players: agent and model by player, as in `AgentAndModel.parse`.
        teams: names of teams by player; "" stands for the only player of an environment.
        roles: models by role or player; that of a player with a team is its members' model, unless
            they have their own.
        name: returns how the caller writes an option.

    Raises:
        InputError: a player has no agent and no model, or has a team as well.
        UnknownName: there is no such team.
    """
    agents: dict[str, str] = {}
    models: dict[str, str] = {}
    for player, team in teams.items():
        if player in players:
            raise InputError(
                f"{name('players')} and {name('teams')} both say who plays for {player}; leave "
                "one of them out."
            )
        for inner, member in load(team).players.items():
            called = f"{player}.{inner}" if player else inner
            agents[called] = member.agent
            if model := member.model or roles.get(player, ""):
                models[called] = model
    for player, text in players.items():
        own = AgentAndModel.parse(name("players"), player, text)
        agents[player] = own.agent or "direct"
        if own.model:
            models[player] = own.model
    options = [
        f"{player}={quote(agent, safe=':')}"
        for player, agent in agents.items()
        if agent != "direct"
    ]
    query = f"?{'&'.join(options)}" if options else ""
    models |= {role: model for role, model in roles.items() if role not in teams}
    value = teams[""] if "" in teams else knob_value(teams)
    return Seating(f"players{query}", models, f"team={value}" if teams else "")


def with_knob(id: str, knob: str) -> str:
    """Return the id of an environment with a knob more; without one if it is empty."""
    return f"{id}{'&' if '?' in id else '?'}{knob}" if knob else id
