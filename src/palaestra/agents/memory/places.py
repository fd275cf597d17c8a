"""Spatial memory: a map of the situations seen, and where each action led from there.

Source: landmark and route memory as in BSC-Nav ("From reactive to cognitive: brain-inspired spatial
intelligence for embodied agents", 2025), in words. Every different observation is a place, every
action an edge. Besides the last exchanges the model is told what it has tried in the place it is
in, and what came of it, however long ago: a way once found is found again, and what changed nothing
need not be tried twice. Needs no model calls.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt

from palaestra.agents.history import CUT, History
from palaestra.agents.memory.agent import RememberingAgent
from palaestra.agents.memory.memory import Memory
from palaestra.agents.react import action_of
from palaestra.core.message import Message, user
from palaestra.core.session import Session

HEAD = "Tried here before:"
LONGEST = 80  # characters of a place that an action led to


class Map(History):
    """The last exchanges, and what is known of the present place."""

    def __init__(self, instructions: str, first: str, last: int, limit: int) -> None:
        super().__init__(instructions, first, last)
        self._limit = limit
        self._edges: dict[str, dict[str, str]] = {}  # place to action to the place it led to

    def add(self, reply: str, observation: str) -> None:
        ways = self._edges.setdefault(self.seen[-1], {})
        action = action_of(reply)
        ways.pop(action, None)  # the latest stand last
        ways[action] = observation
        super().add(reply, observation)

    @property
    def messages(self) -> list[Message]:
        found = super().messages
        here = self.seen[-1]
        ways = list(self._edges.get(here, {}).items())[-self._limit :]
        if ways:
            lines = [f"- {action[:LONGEST]}: {_led(here, there)}" for action, there in ways]
            told = "\n".join([found[-1].content + CUT + HEAD, *lines])
            found[-1] = user(told)
        return found


class PlacesAgent(RememberingAgent):
    """Draws a map of what it sees, and is told what it tried in each place (spatial memory)."""

    name = "places"

    def __init__(
        self,
        *,
        history: NonNegativeInt = 2,
        limit: Annotated[int, Field(ge=1)] = 8,
        thoughts: bool = False,
    ) -> None:
        """The last `history` exchanges, and at most `limit` actions tried in the present place."""
        self.history, self.limit, self.thoughts = history, limit, thoughts

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Map(self.told(session), session.observation.text, self.history, self.limit)


def _led(here: str, there: str) -> str:
    """Where an action led, in one line."""
    return "changed nothing" if there == here else f"led to {' '.join(there.split())[:LONGEST]}"
