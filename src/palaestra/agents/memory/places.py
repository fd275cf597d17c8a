"""Spatial memory: a map of the observations seen, and where each action led from there.

Source: landmark and route memory as in BSC-Nav ("From reactive to cognitive: brain-inspired spatial
intelligence for embodied agents", 2025), as text. Each distinct observation is a place, each action
an edge. A prompt holds the last exchanges, and all actions ever tried in the current place with
their results. So a known route is found again, and actions without effect are not repeated. It
needs no model calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, NonNegativeInt

from palaestra.agents.history import CUT, History
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.agents.react import action_of
from palaestra.core.message import Message, user
from palaestra.core.session import Session

HEAD = "Tried here before:"
LONGEST = 80  # characters of an action or a place in the prompt


class Map(History):
    """The last exchanges, and the known edges of the current place."""

    def __init__(self, instructions: str, first: str, last: int, limit: int) -> None:
        super().__init__(instructions, first, last)
        self._limit = limit
        self._edges: dict[str, dict[str, str]] = {}  # place → action → next place

    def add(self, reply: str | Message, observation: str) -> None:
        edges = self._edges.setdefault(self.seen[-1], {})
        action = action_of(reply if isinstance(reply, str) else reply.text)
        edges.pop(action, None)  # the latest is last
        edges[action] = observation
        super().add(reply, observation)

    @property
    def messages(self) -> Sequence[Message]:
        found = super().messages
        here = self.seen[-1]
        edges = list(self._edges.get(here, {}).items())[-self._limit :]
        if edges:
            lines = [f"- {action[:LONGEST]}: {_led(here, there)}" for action, there in edges]
            text = "\n".join([found[-1].text + CUT + HEAD, *lines])
            return [*found[:-1], user(text)]
        return found


class PlacesAgent(RememberingAgent):
    """Maps the observations, and sees what it tried before in each (spatial memory)."""

    name = "places"

    def __init__(
        self,
        *,
        history: NonNegativeInt = 2,
        limit: Annotated[int, Field(ge=1)] = 8,
        thoughts: bool = False,
    ) -> None:
        """Show the last `history` exchanges and at most `limit` actions tried in this place."""
        self.history, self.limit, self.thoughts = history, limit, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Map(self.instructions(session), session.observation.text, self.history, self.limit)


def _led(here: str, there: str) -> str:
    """Return where an action led, in one line."""
    return "changed nothing" if there == here else f"led to {' '.join(there.split())[:LONGEST]}"
