"""Agents: programs that talk to models and act in the environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from palaestra.core.environment import Action
from palaestra.core.message import Message

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.core.model import Prompt
    from palaestra.core.session import Session


class Agent(ABC):
    """The base class of agents: `run` asks `session.generate` and acts with `session.act`.

    One instance may serve many sessions at once, so keep the state of an episode in local
    variables of `run`.
    """

    name: ClassVar[str]
    several: ClassVar[bool] = False
    """Whether it acts for each of several players, in one conversation per player."""

    sees: bool = False
    """Whether its prompts contain the images of observations."""

    roles: tuple[str, ...] = ()
    """Roles besides "agent" in which it asks a model, such as "planner". A role without a model of
    its own uses the model of "agent"."""

    any_role: bool = False
    """Whether it may ask in roles besides `roles`, which only running it tells, as programs do."""

    in_order: ClassVar[bool] = False
    """Whether rollouts of one task run one after the other, in the order of their members, because
    later ones may use earlier ones. Rollouts of other tasks run concurrently."""

    @abstractmethod
    async def run(self, session: Session) -> None:
        """Run one episode. Returning before the session is over gives up the task."""

    def witness(self, episode: Episode) -> None:
        """Take note of an episode that has ended; called before another one begins.

        A resumed rollout calls it again for each episode in the store. An agent that updates its
        memory only here therefore has the memory of an uninterrupted rollout.
        """

    def phrase(self, action: Action) -> str:
        """Return `action` as a model under this agent would write it; used for demonstrations."""
        return action.text

    def demonstrate(self, prompt: Prompt, actions: Sequence[Action]) -> str:
        """Return `answer` to a prompt; override it where the prompt's tools decide how to reply.

        Calls of tools that the prompt offers stand in `<tool_call>` tags.
        """
        return self.answer(prompt.messages, actions)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Return what a model that knows the solution would reply to a prompt of this agent.

        Override it where the agent asks for more than the next action, such as a plan.

        Args:
            messages: the prompt.
            actions: the actions that solve the task from the present state; at least one.
        """
        return self.phrase(actions[0])
