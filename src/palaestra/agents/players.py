"""The players agent: plays all players of a game, each in a separate conversation."""

from __future__ import annotations

from palaestra.core.agent import Agent
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session


class PlayersAgent(Agent):
    """As `direct`, once for each player, with a separate conversation for each.

    A player uses the model of the role with its name, else the model of the role "agent": one
    policy against itself (self-play), or against other policies.
    """

    name = "players"
    several = True

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        conversations: dict[str, list[Message]] = {
            player: [system(_instructions(session, player))] for player in session.players
        }
        seen = session.observation.text
        while not session.over:
            player = session.turn
            messages = conversations[player]
            messages.append(user(seen))
            reply = await session.generate(messages, role=player)
            messages.append(reply.message)
            transition = await session.act(reply.text.strip(), by=reply)
            seen = transition.observation.text


def _instructions(session: Session, player: str) -> str:
    if len(session.players) == 1:
        return session.instructions
    return f"{session.instructions}\nYou are {player}."
