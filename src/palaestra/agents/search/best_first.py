"""Best-first search with backtracking: go on from the best state known, wherever it is.

Source: Koh et al. 2024 (Tree Search for Language Model Agents): a frontier ordered by value, a
budget of expansions, and a depth. There a state is reached by replaying its actions; here by
the trial's points. Scoring a child when it is made, not when it is visited, is ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from palaestra.agents.search.searching import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank


class BestFirstAgent(SearchAgent):
    """At most `budget` states are expanded, by `samples` proposals each, `depth` actions deep."""

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
    """Expand the best of the frontier, `budget` times or until one state is solved."""
    going = list(frontier)
    for _ in range(budget):
        if tree.holds_solution() or not going:
            break
        node = max(going, key=rank)
        going.remove(node)
        grown = await tree.grow(node, samples)
        going += [child for child in grown if not child.closed and child.depth < depth]
    return tree.best
