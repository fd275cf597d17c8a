"""A controller: the lower half of hierarchical agents, which acts until a goal is reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.plans import REACHED
from palaestra.agents.react import action_of
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

Patience = Annotated[int, Field(ge=1)]
"""How many actions a goal may take."""

FORMAT = (
    "Answer in two lines:\n"
    "Action: one action\n"
    "Reached: yes, if this action reaches the goal, else no"
)


class Controller:
    """One conversation in which one goal after the other is pursued."""

    def __init__(self, session: Session) -> None:
        assert session.observation is not None
        self.seen = session.observation.text
        self.happened: list[tuple[str, str]] = []  # actions and what they led to
        self._session = session
        self._talk: list[Message] = [system(f"{session.instructions}\n{FORMAT}")]

    async def reach(self, goal: str, patience: int) -> str:
        """Act until the model says that the goal is reached; at least once.

        Returns:
            why it was not reached; empty if it was, or if the episode is over.
        """
        for _ in range(patience):
            self._talk.append(user(f"{self.seen}\n\nGoal: {goal}"))
            reply = await self._session.generate(self._talk)
            self._talk.append(assistant(reply.text))
            action = action_of(reply.text)
            transition = await self._session.act(action, by=reply)
            self.seen = transition.observation.text
            self.happened.append((action, self.seen))
            if self._session.over:
                return ""
            if not transition.valid:
                return f"'{action}' was not understood"
            if REACHED.search(reply.text):
                return ""
        return f"{patience} actions did not reach it"


def steered(action: Action) -> str:
    """The reply of a controller's model for a goal that one action reaches."""
    return f"Action: {action.text}\nReached: yes"
