"""ReAct: think, then act (Yao et al. 2023).

Each reply holds a thought and, on its own line, `Action: …`. A reply without either is passed to
the environment as it is, which replies what is wrong with it. With `react?confidence=yes` each
reply also states the probability of solving the task, so that calibration can be measured.

In an environment with tools, a model with `native_tools` thinks in text and acts by a tool call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.agents.history import History, Keep
from palaestra.agents.tool_calling import NativeHistory, act_natively, in_tags
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message
from palaestra.core.session import Session

FORMAT = (
    "But do not reply with the action alone. Each reply has two lines:\n"
    "Thought: what you see and what to do next\n"
    "Action: one action"
)
CALLS = "Before each call of a tool, say what you see and what to do next."
SURE = "\nConfidence: how likely you are to solve the task, from 0 to 1"
_ACTION = re.compile(r"(?:(?im:^[ \t*_#>-]*action:)|Action:)[*_]*")
_THOUGHT = re.compile(r"[\s*_#>-]*thought[*_]*:", re.IGNORECASE)
_FENCED = re.compile(r"```\w*\n(.*?)(?:```|\Z)", re.DOTALL)
_QUOTED = re.compile(r"`([^`]*[^`\s][^`]*)`")
_CONFIDENCE = re.compile(r"Confidence:[ \t]*(\d{0,3}\.?\d+)[ \t]*(%?)")


class ReActAgent(Agent):
    """A chat with a thought before each action."""

    name = "react"
    sees = True

    def __init__(self, *, history: Keep = None, confidence: bool = False) -> None:
        """Show the model all exchanges, or only the last `history`.

        With `confidence`, each reply ends with the model's estimate of its chance of success.
        """
        self.history, self.confidence = history, confidence

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        sure = SURE if self.confidence else ""
        if session.tools and session.can_call_tools():
            instructions = f"{session.instructions}\n{CALLS}{sure}"
            native = NativeHistory(instructions, session.observation, self.history)
            await act_natively(session, native, action_of)
            return
        instructions = f"{session.instructions}\n{FORMAT}{sure}"
        history = History(instructions, session.observation.text, self.history)
        history.add_images(session.observation)
        while not session.over:
            reply = await session.generate(history.messages)
            transition = await session.act(action_of(reply.text), by=reply)
            history.add(reply.message, transition.observation.text)
            history.add_images(transition.observation)

    def phrase(self, action: Action) -> str:
        reply = reply_of(f"{action.text} is the next step.", action.text)
        return f"{reply}\nConfidence: 1" if self.confidence else reply

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        action = actions[0]
        if action.call is None or CALLS not in messages[0].text:
            return self.phrase(action)
        sure = "\nConfidence: 1" if self.confidence else ""
        return f"{action.text} is the next step.{sure}\n{in_tags(action.call)}"


def reply_of(thought: str, action: str) -> str:
    """Return the reply with a thought and an action."""
    return f"Thought: {thought}\nAction: {action}"


def action_of(reply: str) -> str:
    """Return what follows the last `Action:`; without that, the whole reply unless it is a thought.

    It is the rest of the line, or the fenced block that follows. At the beginning of a line, the
    mark may be in lower case or in bold: models write it so. A thought alone is the empty action,
    which environments refuse: a shell would run it.
    """
    ends = [mark.end() for mark in _ACTION.finditer(reply)]
    after = reply[ends[-1] :].strip() if ends else ""
    if not after:
        return "" if _THOUGHT.match(reply) else reply.strip()
    fenced = _FENCED.match(after)
    if fenced and fenced[1].strip():
        return fenced[1].strip()
    line = after.splitlines()[0].strip()
    quoted = _QUOTED.fullmatch(line)
    return quoted[1].strip() if quoted else line


def confidence_of(reply: str) -> float | None:
    """Parse the probability behind the last `Confidence:`; None if there is no valid one.

    It is a verbalised confidence as in Tian et al. 2023.
    """
    stated = _CONFIDENCE.findall(reply)
    if not stated:
        return None
    number, percent = stated[-1]
    probability = float(number) / (100 if percent else 1)
    return probability if probability <= 1 else None
