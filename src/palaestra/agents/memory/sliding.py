"""Sliding window over observations: thoughts and actions stay, old results go (DeepMiner).

Source: Tang et al. 2025. Once more than `window` observations stand behind the first one, the
oldest are replaced by a placeholder, `step` at a time: with a larger step there are fewer branches
of the message graph, hence fewer rows to train. What is trained is what was sent: rollouts and
training forget alike.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History
from palaestra.agents.memory.agent import RememberingAgent
from palaestra.agents.memory.memory import Memory
from palaestra.core.message import Message, user
from palaestra.core.session import Session

OMITTED = "(an old result, left out)"
Count = Annotated[int, Field(ge=1)]


class Sliding(History):
    """All that was said, and of what was seen the first and the last observations."""

    def __init__(self, instructions: str, first: str, window: int, step: int) -> None:
        super().__init__(instructions, first)
        self._window, self._step = window, step

    @property
    def messages(self) -> list[Message]:
        found = super().messages
        over = len(self.replies) - self._window
        omitted = -(-over // self._step) * self._step if over > 0 else 0
        for number in range(omitted):
            found[3 + 2 * number] = user(OMITTED)
        return found


class SlidingAgent(RememberingAgent):
    """A chat that forgets old observations and keeps what it said (DeepMiner, Tang et al. 2025)."""

    name = "sliding"

    def __init__(self, *, window: Count = 5, step: Count = 1, thoughts: bool = False) -> None:
        """At most the last `window` observations are told; they go `step` at a time.

        Raises:
            ValueError: a step beyond the window, which would leave out the newest one.
        """
        if step > window:
            raise ValueError(f"step {step} is larger than window {window}")
        self.window, self.step, self.thoughts = window, step, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Sliding(self.told(session), session.observation.text, self.window, self.step)
