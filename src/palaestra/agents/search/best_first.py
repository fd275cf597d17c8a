"""Best-first search with backtracking: always expand the best state of the frontier.

Source: Koh et al. 2024 (Tree Search for Language Model Agents): a frontier ordered by value, a
budget of expansions, and a depth. The paper reaches a state by replaying its actions; here the
trial restores it. Unlike the paper, a child is scored when it is created, not when it is visited.
"""

from __future__ import annotations

from collections.abc import Iterable

from palaestra.agents.search.base import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank


class BestFirstAgent(SearchAgent):
    """Expands at most `budget` states, by `samples` proposals each, `depth` actions deep."""

    name = "best_first"

    def __init__(
        self,
        *,
        budget: Count = 8,
        samples: Count = 4,
        depth: Count = 5,
        scorer: str = "reward",
        temperature: Temperature = 1.0,
    ) -> None:
        super().__init__(scorer=scorer, temperature=temperature)
        self.budget, self.samples, self.depth = budget, samples, depth

    async def search(self, tree: Tree) -> Node | None:
        return await best_first(tree, [tree.root], self.budget, self.samples, self.depth)


async def best_first(
    tree: Tree, frontier: Iterable[Node], budget: int, samples: int, depth: int
) -> Node | None:
    """Expand the best state of the frontier, `budget` times or until a state is solved."""
    open_nodes = list(frontier)
    for _ in range(budget):
        if tree.holds_solution() or not open_nodes:
            break
        node = max(open_nodes, key=rank)
        open_nodes.remove(node)
        grown = await tree.grow(node, samples)
        open_nodes += [child for child in grown if not child.closed and child.depth < depth]
    return tree.best
