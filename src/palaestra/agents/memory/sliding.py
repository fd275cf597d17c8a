"""Sliding window over observations: thoughts and actions stay, old results are dropped (DeepMiner).

Source: Tang et al. 2025. Once more than `window` observations follow the first one, the oldest are
replaced by a placeholder, `step` at a time. A larger step gives fewer branches of the message
graph, hence fewer rows to train. Training uses the prompts as they were sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.core.message import Message, user
from palaestra.core.session import Session

OMITTED = "(an old result, left out)"
Count = Annotated[int, Field(ge=1)]


class Sliding(History):
    """All replies, and the first and the last observations."""

    def __init__(self, instructions: str, first: str, window: int, step: int) -> None:
        super().__init__(instructions, first)
        self._window, self._step = window, step

    @property
    def messages(self) -> Sequence[Message]:
        found = list(super().messages)
        over = len(self.replies) - self._window
        omitted = -(-over // self._step) * self._step if over > 0 else 0
        for number in range(omitted):
            found[3 + 2 * number] = user(OMITTED)
        return found


class SlidingAgent(RememberingAgent):
    """A chat that keeps its replies and forgets old observations (DeepMiner, Tang et al. 2025)."""

    name = "sliding"

    def __init__(self, *, window: Count = 5, step: Count = 1, thoughts: bool = False) -> None:
        """Show at most the last `window` observations; drop them `step` at a time.

        Raises:
            ValueError: the step is larger than the window, which would drop the newest one.
        """
        if step > window:
            raise ValueError(f"step {step} is larger than window {window}")
        self.window, self.step, self.thoughts = window, step, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Sliding(self.instructions(session), session.observation.text, self.window, self.step)
