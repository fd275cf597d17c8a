"""The base of search agents: search in a trial, then take the actions found.

The prompts are those of the direct agent, so any model that can act can search. Calls on the
chosen path and their rejected siblings are in one message graph.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.search.scorers import SCORER, asks_for_value, find_scorer, value_of
from palaestra.agents.search.tree import Node, Tree
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Signals
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0.0)]


class SearchAgent(Agent):
    """The base class of search agents; a subclass implements `search`."""

    roles = ("judge", SCORER)

    def __init__(self, *, scorer: str = "reward", temperature: Temperature = 1.0) -> None:
        """Score states with the scorer of that name; sample proposals at the temperature."""
        self.scorer, self.temperature = find_scorer(scorer), temperature

    @abstractmethod
    async def search(self, tree: Tree) -> Node | None:
        """Return the state to go to, below the root; None: nothing was found, so just act."""

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            path = await self._path(session, messages)
            messages, _ = await take(session, messages, path)

    async def _path(self, session: Session, messages: list[Message]) -> list[Node]:
        async with session.trial() as trial:
            root = Node(messages, trial.signals, point=await trial.save())
            tree = Tree(session, trial, root, self.scorer, self.temperature)
            found = await self.search(tree)
        return found.path if found is not None else []

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if asks_for_value(messages):
            return value_of(actions)
        return self.phrase(actions[0])


async def take(
    session: Session, messages: list[Message], path: Sequence[Node]
) -> tuple[list[Message], bool]:
    """Take the actions of a path, or without one a fresh action of the model.

    Returns:
        the conversation with the actions that were taken, and whether all went as in the trial.
        After the first that did not, none is taken.
    """
    if not path:
        path = [Node(messages, Signals(), reply=await session.generate(messages))]
    for node in path:
        assert node.reply is not None  # only the root has none
        done = await session.act(node.reply.text.strip(), by=node.reply)
        messages = [*messages, node.reply.message, user(done.observation.text)]
        if node.transition != done:  # not tried, or the environment behaved differently
            return messages, False
    return messages, True
