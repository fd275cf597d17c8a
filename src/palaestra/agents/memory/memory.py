"""Memory: what an agent tells its model of the past.

An agent asks with `messages` and hands over what came of it by `add`. Before each question it
awaits `update`, in which a memory may ask a model itself, in the role "memory": such calls are
nodes of the message graph like all others, hence recorded, replayed and trained. When the episode
has ended with a score, `keep` hands to later episodes what they may know of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from palaestra.core.message import Message
from palaestra.core.session import Session


class Memory(ABC):
    """The past of one episode; it belongs to that episode alone."""

    @property
    @abstractmethod
    def messages(self) -> list[Message]:
        """What to ask the model with; ends with the present observation."""

    @abstractmethod
    def add(self, reply: str, observation: str) -> None:
        """One more exchange: what the model said, and what was seen after it."""

    async def update(self, session: Session) -> None:
        """Make ready for the next question; may ask a model, in the role "memory"."""
        return

    def keep(self, session: Session) -> None:
        """The episode has ended with a score: keep what later ones may know of it."""
        return
