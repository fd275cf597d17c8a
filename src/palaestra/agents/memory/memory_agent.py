"""The base of agents with a memory, which builds their prompts; each memory has its own agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from palaestra.agents.memory.base import Memory
from palaestra.agents.react import FORMAT, action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message
from palaestra.core.model import Generation
from palaestra.core.session import Session

ROLE = "memory"


class RememberingAgent(Agent):
    """A chat whose prompts come from a memory; each reply is the action, or a thought and one."""

    thoughts: bool = False

    @abstractmethod
    def memory(self, session: Session) -> Memory:
        """Create the memory of an episode, which already has its first observation."""

    async def run(self, session: Session) -> None:
        past = self.memory(session)
        try:
            while not session.over:
                await past.update(session)
                reply = await session.generate(past.messages)
                past.add(reply.text, await self.act(session, reply))
        finally:
            if session.outcome is not None and session.outcome.scored:
                past.keep(session)

    async def act(self, session: Session, reply: Generation) -> str:
        """Take the action of a reply; return the next observation."""
        return (await session.act(action_of(reply.text), by=reply)).observation.text

    def instructions(self, session: Session) -> str:
        """Return the environment's instructions and the reply format."""
        return f"{session.instructions}\n{FORMAT}" if self.thoughts else session.instructions

    def phrase(self, action: Action) -> str:
        if not self.thoughts:
            return action.text
        return f"Thought: {action.text} is the next step.\nAction: {action.text}"


async def ask(session: Session, messages: Sequence[Message], length: int) -> str:
    """Return the reply of the model in the role "memory", of at most `length` tokens."""
    sampling = replace(session.sampling, max_tokens=length)
    reply = await session.generate(messages, role=ROLE, sampling=sampling)
    return reply.text.strip()
