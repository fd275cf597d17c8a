"""Which agent and which model plays for each player of a game, as one agent and its roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

from palaestra.core.errors import InputError


class Seating(NamedTuple):
    """The players of a request, in the terms in which an evaluation knows agents and models."""

    agent: str  # `players`, with the agents of players as options
    roles: dict[str, str]  # the model of each player that has its own
    first: str | None  # the first of these models


def seated(players: Mapping[str, str], name: Callable[[str], str] = str) -> Seating:
    """Return the seating that texts like `react@smollm2-135m` describe, by player.

    Either part may be missing: `react` plays with the model of all players, `@smollm2-135m` under
    the agent `direct`.

    Raises:
        InputError: a text is empty.
    """
    agents, roles = [], {}
    for player, text in players.items():
        agent, _, model = text.partition("@")
        if not (player and (agent or model)):
            raise InputError(
                f"{name('players')} {player}={text} names nobody; write NAME=AGENT@MODEL, such as "
                "player0=react@smollm2-135m."
            )
        if agent:
            agents.append(f"{player}={quote(agent, safe=':')}")
        if model:
            roles[player] = model
    query = f"?{'&'.join(agents)}" if agents else ""
    return Seating(f"players{query}", roles, next(iter(roles.values()), None))
