"""The players agent: plays all seats of a game, each with a conversation of its own."""

from __future__ import annotations

from palaestra.core.agent import Agent
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session


class PlayersAgent(Agent):
    """As `direct`, for each player: nobody sees what another one saw or said.

    A player's model is that of the role with its name, else that of the role "agent": one policy
    against itself (self-play), or a policy against others.
    """

    name = "players"
    several = True

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        talks: dict[str, list[Message]] = {
            player: [system(_told(session, player))] for player in session.players
        }
        seen = session.observation.text
        while not session.over:
            player = session.turn
            talk = talks[player]
            talk.append(user(seen))
            reply = await session.generate(talk, role=player)
            talk.append(assistant(reply.text))
            transition = await session.act(reply.text.strip(), by=reply)
            seen = transition.observation.text


def _told(session: Session, player: str) -> str:
    if len(session.players) == 1:
        return session.instructions
    return f"{session.instructions}\nYou are {player}."
