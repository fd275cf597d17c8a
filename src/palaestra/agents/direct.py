"""The direct agent: each reply of the model is the action."""

from __future__ import annotations

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.session import Session


class DirectAgent(Agent):
    """A chat: the instructions, then observations and actions in turn."""

    name = "direct"
    sees = True

    def __init__(self, *, history: Keep = None) -> None:
        """Show the model all exchanges, or only the last `history`."""
        self.history = history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        opening = self.opening(session.instructions)
        history = History(opening, session.observation.text, self.history)
        history.add_images(session.observation)
        while not session.over:
            reply = await session.generate(history.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            history.add(reply.message, transition.observation.text)
            history.add_images(transition.observation)

    def opening(self, instructions: str) -> str:
        """Return the system message."""
        return instructions
