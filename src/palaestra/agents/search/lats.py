"""LATS: Monte-Carlo tree search with a model's proposals and a scorer's values.

Each iteration descends by UCT, expands a state, follows the best children to `depth`, and backs
the value up. Scoring a child counts as its first visit.

Source: Zhou et al. 2023 (Language Agent Tree Search); UCT by Kocsis and Szepesvári 2006. LATS
also reflects on failed attempts; that part is left out.
"""

from __future__ import annotations

import math

from palaestra.agents.search.base import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank


class LatsAgent(SearchAgent):
    """Runs `iterations` of selection, expansion, simulation and backup."""

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
        """Search with `explore` as UCT's exploration constant."""
        super().__init__(scorer=scorer, temperature=temperature)
        self.iterations, self.samples, self.depth = iterations, samples, depth
        self.explore = explore

    async def search(self, tree: Tree) -> Node | None:
        for _ in range(self.iterations):
            node = self._select(tree.root)
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

    def _select(self, node: Node) -> Node | None:
        """Return the state to expand; None if the tree is complete to `depth`."""
        while node.children:
            open_nodes = [child for child in node.children if self._expandable(child)]
            if not open_nodes:
                return None
            node = max(open_nodes, key=self._bound)
        return node

    def _expandable(self, node: Node) -> bool:
        """Return whether it or a descendant can still be expanded."""
        if node.children:
            return any(self._expandable(child) for child in node.children)
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
