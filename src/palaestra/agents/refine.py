"""Self-Refine: propose an action, criticise it, improve it, and only then act.

Source: Madaan et al. 2023. The same model does all three, unless the role "critic" has one of its
own. Rounds end when the critic is content, or after `rounds` of them. What was said on the way to
an action is not told later on: the conversation keeps what was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session

ROLE = "critic"
CRITIC = 'You criticise the last action before it is taken. If it is right, reply "Fine".'
FEEDBACK = 'What is wrong with that action? If nothing is, reply "Fine".'
IMPROVE = "Improve the action by that criticism. Reply with the action alone."


class RefineAgent(Agent):
    """As `direct`, with rounds of feedback and improvement before each action."""

    name = "refine"
    roles = (ROLE,)

    def __init__(self, *, rounds: Annotated[int, Field(ge=0)] = 2, history: Keep = None) -> None:
        """At most `rounds` of feedback for each action."""
        self.rounds, self.history = rounds, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        past = History(session.instructions, session.observation.text, self.history)
        while not session.over:
            reply = await self._refined(session, past.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            past.add(reply.text, transition.observation.text)

    async def _refined(self, session: Session, told: Sequence[Message]) -> Generation:
        reply = await session.generate(told)
        talk, as_critic = list(told), system(f"{told[0].content}\n{CRITIC}")
        for _ in range(self.rounds):
            talk += [assistant(reply.text), user(FEEDBACK)]
            feedback = (await session.generate([as_critic, *talk[1:]], role=ROLE)).text
            if feedback.strip().lower().startswith("fine"):
                break
            talk += [assistant(feedback), user(IMPROVE)]
            reply = await session.generate(talk)
        return reply

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """A model that knows the way finds fault with whatever differs from what it knows."""
        if messages[-1].content != FEEDBACK:
            return self.phrase(actions[0])
        right = messages[-2].content.strip() == actions[0].text
        return "Fine." if right else f"{actions[0].text} would be better."
