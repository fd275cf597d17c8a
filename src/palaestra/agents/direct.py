"""The direct agent: each reply of the model is the action."""

from __future__ import annotations

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.session import Session


class DirectAgent(Agent):
    """A chat: the world explains itself, then observation and action alternate."""

    name = "direct"
    sees = True

    def __init__(self, *, history: Keep = None) -> None:
        """With `history`, only so many of the last exchanges are told to the model."""
        self.history = history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        past = History(session.instructions, session.observation.text, self.history)
        past.look(session.observation)
        while not session.over:
            reply = await session.generate(past.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            past.add(reply.text, transition.observation.text)
            past.look(transition.observation)
