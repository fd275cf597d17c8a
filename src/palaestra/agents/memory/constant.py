"""Constant memory: each reply rewrites a state that replaces the history (MEM1, Zhou et al. 2025).

The model sees only the task, its last reply and the next observation. Whatever it needs later it
writes between <IS> and </IS> (internal state) in every reply. So prompts are as short at turn 100
as at turn 2. Each prompt is a separate branch, trained as it was sent.
"""

from __future__ import annotations

import re

from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

FORMAT = (
    "You will forget everything but your last reply. Answer in two lines:\n"
    "<IS>all that you must still know</IS>\n"
    "Action: one action"
)
STATE = re.compile(r"<IS>.*?</IS>", re.DOTALL)


class Constant(Memory):
    """The task, the last reply with its state, and the last observation."""

    def __init__(self, instructions: str, first: str) -> None:
        self._task = [system(instructions), user(first)]
        self._state = ""  # the last one written
        self._last: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        return self._task + self._last

    def add(self, reply: str, observation: str) -> None:
        written = STATE.findall(reply)
        kept = reply if written or not self._state else f"{self._state}\n{reply}"
        self._state = written[-1] if written else self._state
        self._last = [assistant(kept), user(observation)]


class ConstantAgent(RememberingAgent):
    """Sees the task and its last reply, which holds its state (MEM1, Zhou et al. 2025)."""

    name = "constant"

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Constant(f"{session.instructions}\n{FORMAT}", session.observation.text)

    def phrase(self, action: Action) -> str:
        return f"<IS>{action.text} is the next step.</IS>\nAction: {action.text}"
