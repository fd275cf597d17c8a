"""Agents: programs that talk to models and act in the environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from palaestra.core.environment import Action

if TYPE_CHECKING:
    from palaestra.core.session import Session


class Agent(ABC):
    """Subclass it and write `run`: ask `session.generate`, act with `session.act`.

    One instance may serve many sessions at once: keep what belongs to an episode
    in local variables of `run`.
    """

    name: ClassVar[str]
    several: ClassVar[bool] = False
    """Whether it plays for each of several players, with a conversation for each."""

    @abstractmethod
    async def run(self, session: Session) -> None:
        """Live one episode. Returning before the session is over gives the task up."""

    def phrase(self, action: Action) -> str:
        """How a model steered by this agent would say `action`; used for demonstrations."""
        return action.text
