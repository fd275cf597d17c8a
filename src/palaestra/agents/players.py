"""The players agent: an agent for each player of a game, `direct` unless another one is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from palaestra.agents.direct import DirectAgent
from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import Message
from palaestra.core.session import Session


class Seats(Agent):
    """Plays with one agent per player."""

    name, several = "seats", True

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        """Take the agents, by player."""
        self._agents = agents

    async def run(self, session: Session) -> None:
        await session.play(self._agents)


class PlayersAgent(Agent):
    """An agent for each player, each in conversations of its own.

    A player uses the model of the role with its name, else the model of the role "agent": one
    policy against itself (self-play), or against other policies.
    """

    name = "players"
    several = True

    def __init__(self, **agents: str) -> None:
        """Play with `direct`, or for the named players with other agents: `players?white=react`.

        Their options follow percent-encoded: `players?white=react%3Fhistory%3D4`.
        """
        self.agents = {player: _agent(player, name) for player, name in agents.items()}
        self.default = DirectAgent()
        self.sees = all(agent.sees for agent in self.agents.values())
        self.roles = tuple(
            f"{player}/{role}" for player, agent in self.agents.items() for role in agent.roles
        )

    def agent_of(self, player: str) -> Agent:
        """Return the agent that plays for a player."""
        return self.agents.get(player, self.default)

    async def run(self, session: Session) -> None:
        players = session.players
        for player in self.agents:
            if player not in players:
                raise InputError(
                    f"'{session.task.environment}' has no player '{player}'; "
                    f"name one of {', '.join(players)}."
                )
        if len(players) == 1:
            await self.agent_of(players[0]).run(session)
        else:
            await session.play({player: self.agent_of(player) for player in players})

    def phrase(self, action: Action) -> str:
        return self.default.phrase(action)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        return self.default.answer(messages, actions)


def _agent(player: str, name: str) -> Agent:
    try:
        agent = make_agent(unquote(name))
    except UnknownName as error:
        raise InputError(
            f"'{player}={name}' of the agent 'players' names no agent for a player '{player}': "
            f"{error}"
        ) from None
    if agent.in_order or agent.several:
        raise InputError(
            f"The agent '{agent.name}' cannot play for {player}: it "
            f"{'plays all players' if agent.several else 'learns from one episode to the next'}; "
            "choose another one."
        )
    return agent
