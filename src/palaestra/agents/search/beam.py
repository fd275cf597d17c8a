"""Beam search over steps: of all states one action further, keep the best few.

Source: Xie et al. 2023 (self-evaluation guided beam search); over an agent's steps, Xia et al.
2025 (AgentRM).
"""

from __future__ import annotations

from palaestra.agents.search.base import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank


class BeamAgent(SearchAgent):
    """Keeps `width` states, and continues each by `samples` proposals, `depth` times."""

    name = "beam"

    def __init__(
        self,
        *,
        width: Count = 2,
        samples: Count = 4,
        depth: Count = 5,
        scorer: str = "reward",
        temperature: Temperature = 1.0,
    ) -> None:
        super().__init__(scorer=scorer, temperature=temperature)
        self.width, self.samples, self.depth = width, samples, depth

    async def search(self, tree: Tree) -> Node | None:
        kept = [tree.root]
        for _ in range(self.depth):
            grown = [child for node in kept for child in await tree.grow(node, self.samples)]
            open_nodes = [node for node in grown if not node.closed]
            kept = sorted(open_nodes, key=rank, reverse=True)[: self.width]
            if tree.holds_solution() or not kept:
                break
        return tree.best
