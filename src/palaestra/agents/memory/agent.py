"""The remembering agent: a chat whose past is told by a memory. Each memory has one of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from palaestra.agents.memory.memory import Memory
from palaestra.agents.react import FORMAT, action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message
from palaestra.core.model import Generation
from palaestra.core.session import Session

ROLE = "memory"


class RememberingAgent(Agent):
    """A chat through a memory: each reply is the action, after a thought where asked for."""

    thoughts: bool = False

    @abstractmethod
    def memory(self, session: Session) -> Memory:
        """A memory for this episode, whose first observation is there."""

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
        """Do what a reply says; returns what is seen after it."""
        return (await session.act(action_of(reply.text), by=reply)).observation.text

    def told(self, session: Session) -> str:
        """The world's instructions, and how to answer."""
        return f"{session.instructions}\n{FORMAT}" if self.thoughts else session.instructions

    def phrase(self, action: Action) -> str:
        if not self.thoughts:
            return action.text
        return f"Thought: {action.text} is the next step.\nAction: {action.text}"


async def ask(session: Session, messages: Sequence[Message], length: int) -> str:
    """What the model in the role "memory" answers, in at most so many tokens."""
    sampling = replace(session.sampling, max_tokens=length)
    reply = await session.generate(messages, role=ROLE, sampling=sampling)
    return reply.text.strip()
