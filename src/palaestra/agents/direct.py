"""The direct agent: each reply of the model is the action."""

from __future__ import annotations

from palaestra.core.agent import Agent
from palaestra.core.message import assistant, system, user
from palaestra.core.session import Session


class DirectAgent(Agent):
    """Append-only chat: the world explains itself, then observation and action alternate."""

    name = "direct"

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            transition = await session.act(reply.text.strip())
            messages += [assistant(reply.text), user(transition.observation.text)]
