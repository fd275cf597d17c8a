"""LATS: Monte-Carlo tree search with a model's proposals, and values by a scorer.

Each iteration goes down by UCT, expands a state, follows the best children to `depth`, and
hands what it found back up. A child counts as visited once when it is scored.

Source: Zhou et al. 2023 (Language Agent Tree Search); UCT by Kocsis and Szepesvári 2006. LATS
also reflects on failed tries; that part is left out.
"""

from __future__ import annotations

import math

from palaestra.agents.search.searching import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank


class LatsAgent(SearchAgent):
    """`iterations` of selection, expansion, simulation and backing up."""

    name = "lats"

    def __init__(
        self,
        *,
        iterations: Count = 4,
        samples: Count = 4,
        depth: Count = 5,
        explore: Temperature = 1.0,
        scorer: str = "reward",
        temperature: Temperature = 1.0,
    ) -> None:
        """`explore` is UCT's constant."""
        super().__init__(scorer=scorer, temperature=temperature)
        self.iterations, self.samples, self.depth = iterations, samples, depth
        self.explore = explore

    async def search(self, tree: Tree) -> Node | None:
        for _ in range(self.iterations):
            node = self._selected(tree.root)
            if tree.holds_solution() or node is None:
                break
            while not node.closed and node.depth < self.depth:
                children = await tree.grow(node, self.samples)
                for child in children:
                    child.visits, child.worth = 1, child.score
                if tree.holds_solution() or not children:
                    break
                node = max(children, key=rank)
            _back_up(node)
        return tree.best

    def _selected(self, node: Node) -> Node | None:
        """The state to expand; None where the whole tree is known to `depth`."""
        while node.children:
            going = [child for child in node.children if self._goes_on(child)]
            if not going:
                return None
            node = max(going, key=self._bound)
        return node

    def _goes_on(self, node: Node) -> bool:
        """Whether there is still something to expand in it or below it."""
        if node.children:
            return any(self._goes_on(child) for child in node.children)
        return not node.closed and node.depth < self.depth

    def _bound(self, node: Node) -> float:
        assert node.parent is not None
        tries = max(node.parent.visits, 1)
        return node.worth / node.visits + self.explore * math.sqrt(math.log(tries) / node.visits)


def _back_up(node: Node) -> None:
    found = node.score
    above: Node | None = node
    while above is not None:
        above.visits, above.worth = above.visits + 1, above.worth + found
        above = above.parent
