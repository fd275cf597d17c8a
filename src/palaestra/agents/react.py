"""ReAct: think, then act (Yao et al. 2023).

Each reply holds a thought and, on a line of its own, `Action: …`. A reply without
that line is not an action: the world is told so, and answers in words.
"""

from __future__ import annotations

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session

FORMAT = (
    "Answer each observation in two lines:\n"
    "Thought: what you see and what to do next\n"
    "Action: one action"
)


class ReActAgent(Agent):
    """A chat with a thought before each action."""

    name = "react"
    sees = True

    def __init__(self, *, history: Keep = None) -> None:
        """With `history`, only so many of the last exchanges are told to the model."""
        self.history = history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        told = f"{session.instructions}\n{FORMAT}"
        past = History(told, session.observation.text, self.history)
        past.look(session.observation)
        while not session.over:
            reply = await session.generate(past.messages)
            transition = await session.act(action_of(reply.text))
            past.add(reply.text, transition.observation.text)
            past.look(transition.observation)

    def phrase(self, action: Action) -> str:
        return f"Thought: {action.text} is the next step.\nAction: {action.text}"


def action_of(reply: str) -> str:
    """What follows the last `Action:`; the whole reply where there is none."""
    _, found, after = reply.rpartition("Action:")
    return after.strip().splitlines()[0].strip() if found and after.strip() else reply.strip()
