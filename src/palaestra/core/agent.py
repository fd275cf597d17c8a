"""Agents: programs that talk to models and act in the environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from palaestra.core.environment import Action
from palaestra.core.message import Message

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.core.session import Session


class Agent(ABC):
    """Subclass it and write `run`: ask `session.generate`, act with `session.act`.

    One instance may serve many sessions at once: keep what belongs to an episode
    in local variables of `run`.
    """

    name: ClassVar[str]
    several: ClassVar[bool] = False
    """Whether it plays for each of several players, with a conversation for each."""

    sees: ClassVar[bool] = False
    """Whether it tells its model the pictures of observations."""

    roles: ClassVar[tuple[str, ...]] = ()
    """Roles besides "agent" in which it asks a model, such as "planner"; whoever has no model of
    its own is played by that of "agent"."""

    in_order: ClassVar[bool] = False
    """Whether rollouts of one task are lived one after the other, in the order of their members,
    because later ones may know of earlier ones; those of other tasks are lived meanwhile."""

    @abstractmethod
    async def run(self, session: Session) -> None:
        """Live one episode. Returning before the session is over gives the task up."""

    def witness(self, episode: Episode) -> None:
        """Told of each episode of a rollout that has ended, before another one begins.

        When a rollout is resumed it is told anew of those that the store holds, so what an agent
        remembers by this alone is what it would remember had nothing been interrupted.
        """

    def phrase(self, action: Action) -> str:
        """How a model steered by this agent would say `action`; used for demonstrations."""
        return action.text

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """What a model that knows the way would reply to a prompt of this agent.

        Override it where the agent asks for more than the next action, such as a plan.

        Args:
            messages: the prompt.
            actions: those that solve the task from the present state; at least one.
        """
        return self.phrase(actions[0])
