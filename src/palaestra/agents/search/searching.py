"""What search agents have in common: search in a trial, then do what was found.

The prompts are those of the direct agent, so any model that can act can search; a call in the
main line and its rejected siblings hang in one message graph.
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
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0.0)]


class SearchAgent(Agent):
    """Subclass it and write `search`."""

    roles = ("judge", SCORER)

    def __init__(self, *, scorer: str = "reward", temperature: Temperature = 1.0) -> None:
        """With the scorer of that name; proposals are sampled at the temperature."""
        self.scorer, self.temperature = find_scorer(scorer), temperature

    @abstractmethod
    async def search(self, tree: Tree) -> Node | None:
        """The state to go to, below the root; None: nothing was found, so the model just acts."""

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            way = await self._way(session, messages)
            if not way:
                way = [Node(messages, Signals(), reply=await session.generate(messages))]
            for node in way:
                assert node.reply is not None  # the root alone has none
                done = await session.act(node.reply.text.strip(), by=node.reply)
                messages = [*messages, assistant(node.reply.text), user(done.observation.text)]
                if node.transition != done:  # it was not tried, or the world went another way
                    break

    async def _way(self, session: Session, messages: list[Message]) -> list[Node]:
        async with session.trial() as trial:
            root = Node(messages, trial.signals, point=await trial.save())
            tree = Tree(session, trial, root, self.scorer, self.temperature)
            found = await self.search(tree)
        return found.way if found is not None else []

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if asks_for_value(messages):
            return value_of(actions)
        return self.phrase(actions[0])
