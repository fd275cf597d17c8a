"""The direct agent: each reply of the model is the action."""

from __future__ import annotations

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.session import Session

REFLECTION = "That was a mistake. I take another way from here."
ANSWER = "ok."  # the message after a reflection; Agent-R's release (Yuan et al. 2025) uses it too


class DirectAgent(Agent):
    """A chat: the instructions, then observations and actions in turn."""

    name = "direct"
    sees = True

    def __init__(self, *, history: Keep = None, reflects: bool = False) -> None:
        """Show the model all exchanges, or only the last `history`.

        With `reflects`, a reply that is the sentence `REFLECTION` is no action: it is answered
        with `ANSWER` and takes no turn, unless the reply before it was one as well. So policies
        that learned journeys or splices can notice a mistake.
        """
        self.history, self.reflects = history, reflects

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        opening = self.opening(session.instructions)
        history = History(opening, session.observation.text, self.history)
        history.add_images(session.observation)
        reflected = False
        while not session.over:
            reply = await session.generate(history.messages)
            text = reply.text.strip()
            reflected = self.reflects and text == REFLECTION and not reflected
            if reflected:
                history.add(reply.message, ANSWER)
                continue
            transition = await session.act(text, by=reply)
            history.add(reply.message, transition.observation.text)
            history.add_images(transition.observation)

    def opening(self, instructions: str) -> str:
        """Return the system message."""
        return instructions
