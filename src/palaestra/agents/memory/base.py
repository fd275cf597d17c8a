"""Memory: it builds an agent's prompts from the history of an episode.

An agent prompts its model with `messages` and passes the reply and the next observation to `add`.
Before each prompt it awaits `update`, in which a memory may call a model itself, in the role
"memory". Such calls are nodes of the message graph like all others, hence recorded, replayed and
trained. When the episode has ended with a score, `keep` stores what later episodes may use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from palaestra.core.message import Message
from palaestra.core.session import Session


class Memory(ABC):
    """The memory of one episode, which is not shared with other episodes."""

    @property
    @abstractmethod
    def messages(self) -> Sequence[Message]:
        """Return the prompt, which ends with the current observation."""

    @abstractmethod
    def add(self, reply: str, observation: str) -> None:
        """Append an exchange: the model's reply and the observation that follows it."""

    async def update(self, session: Session) -> None:
        """Prepare the next prompt; may call a model in the role "memory"."""
        return

    def keep(self, session: Session) -> None:
        """Store what later episodes may use; called when the episode has ended with a score."""
        return
