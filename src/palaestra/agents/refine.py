"""Self-Refine: propose an action, criticise it, improve it, and only then act.

Source: Madaan et al. 2023. One model does all three, unless the role "critic" has a separate model.
It stops when the critic has no objection, or after `rounds` rounds. Feedback is dropped from later
prompts: the conversation keeps only the actions taken.
"""

from __future__ import annotations

import re
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
_ACTION = "(the|that|this|your) (action|command|answer|reply|move)"
_APPROVAL = re.compile(
    rf"\W*(fine\b|nothing( is wrong)?( with {_ACTION})?\W*\Z"
    rf"|there is (nothing wrong|no issue|no problem)( with {_ACTION})?\W*\Z"
    rf"|{_ACTION} (is|looks|seems) (correct|right|fine|good|valid)\W*\Z)",
    re.IGNORECASE,
)  # models agree in more words than the one asked for


class RefineAgent(Agent):
    """As `direct`, with rounds of feedback and improvement before each action."""

    name = "refine"
    roles = (ROLE,)

    def __init__(self, *, rounds: Annotated[int, Field(ge=0)] = 2, history: Keep = None) -> None:
        """Ask for at most `rounds` rounds of feedback per action."""
        self.rounds, self.history = rounds, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        history = History(session.instructions, session.observation.text, self.history)
        while not session.over:
            reply = await self._refined(session, history.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            history.add(reply.message, transition.observation.text)

    async def _refined(self, session: Session, prompt: Sequence[Message]) -> Generation:
        reply = await session.generate(prompt)
        messages, as_critic = list(prompt), system(f"{prompt[0].text}\n{CRITIC}")
        for _ in range(self.rounds):
            messages += [reply.message, user(FEEDBACK)]
            feedback = (await session.generate([as_critic, *messages[1:]], role=ROLE)).text
            if _APPROVAL.match(feedback):
                break
            messages += [assistant(feedback), user(IMPROVE)]
            reply = await session.generate(messages)
        return reply

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Criticise an action that differs from the plan's; approve it otherwise."""
        if messages[-1].text != FEEDBACK:
            return self.phrase(actions[0])
        right = messages[-2].text.strip() == actions[0].text
        return "Fine." if right else f"{actions[0].text} would be better."
