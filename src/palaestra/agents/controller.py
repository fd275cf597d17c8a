"""The controller: the lower level of hierarchical agents, which acts until a goal is reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.numbered_plan import REACHED
from palaestra.agents.react import action_of
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

Patience = Annotated[int, Field(ge=1)]
"""The maximum number of actions for one goal."""

FORMAT = (
    "Answer in two lines:\n"
    "Action: one action\n"
    "Reached: yes, if this action reaches the goal, else no"
)


class Controller:
    """One conversation that pursues one goal after the other."""

    def __init__(self, session: Session) -> None:
        assert session.observation is not None
        self.seen = session.observation.text
        self.log: list[tuple[str, str]] = []  # (action, observation)
        self._session = session
        self._messages: list[Message] = [system(f"{session.instructions}\n{FORMAT}")]

    async def reach(self, goal: str, patience: int) -> str:
        """Act at least once, until the model says that the goal is reached.

        Returns:
            why the goal was not reached; empty if it was, or if the episode is over.
        """
        for _ in range(patience):
            self._messages.append(user(f"{self.seen}\n\nGoal: {goal}"))
            reply = await self._session.generate(self._messages)
            self._messages.append(reply.message)
            action = action_of(reply.text)
            transition = await self._session.act(action, by=reply)
            self.seen = transition.observation.text
            self.log.append((action, self.seen))
            if self._session.over:
                return ""
            if not transition.valid:
                return f"'{action}' was not understood"
            if REACHED.search(reply.text):
                return ""
        return f"{patience} actions did not reach it"


def reply_for(action: Action) -> str:
    """Return the controller model's reply for a goal that one action reaches."""
    return f"Action: {action.text}\nReached: yes"
