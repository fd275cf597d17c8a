"""ReAct: think, then act (Yao et al. 2023).

Each reply holds a thought and, on a line of its own, `Action: …`. A reply without
that line is not an action: the world is told so, and answers in words. With
`react?confidence=yes` it also says how sure it is of solving the task, so that its
calibration can be measured.
"""

from __future__ import annotations

import re

from palaestra.agents.history import History, Keep
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session

FORMAT = (
    "Answer each observation in two lines:\n"
    "Thought: what you see and what to do next\n"
    "Action: one action"
)
SURE = "\nConfidence: how likely you are to solve the task, from 0 to 1"
_CONFIDENCE = re.compile(r"Confidence:[ \t]*(\d{0,3}\.?\d+)[ \t]*(%?)")


class ReActAgent(Agent):
    """A chat with a thought before each action."""

    name = "react"
    sees = True

    def __init__(self, *, history: Keep = None, confidence: bool = False) -> None:
        """With `history`, only so many of the last exchanges are told to the model.

        With `confidence`, each reply ends with how likely the model thinks success is.
        """
        self.history, self.confidence = history, confidence

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        told = f"{session.instructions}\n{FORMAT}{SURE if self.confidence else ''}"
        past = History(told, session.observation.text, self.history)
        past.look(session.observation)
        while not session.over:
            reply = await session.generate(past.messages)
            transition = await session.act(action_of(reply.text), by=reply)
            past.add(reply.text, transition.observation.text)
            past.look(transition.observation)

    def phrase(self, action: Action) -> str:
        said = f"Thought: {action.text} is the next step.\nAction: {action.text}"
        return f"{said}\nConfidence: 1" if self.confidence else said


def action_of(reply: str) -> str:
    """What follows the last `Action:`; the whole reply where there is none."""
    _, found, after = reply.rpartition("Action:")
    return after.strip().splitlines()[0].strip() if found and after.strip() else reply.strip()


def confidence_of(reply: str) -> float | None:
    """The chance of success that the last `Confidence:` tells; None without a chance.

    A verbalised confidence, as Tian et al. 2023 ask for it.
    """
    said = _CONFIDENCE.findall(reply)
    if not said:
        return None
    number, percent = said[-1]
    chance = float(number) / (100 if percent else 1)
    return chance if chance <= 1 else None
