"""Best of N: try N whole rollouts, then execute the best one.

Source: Cobbe et al. 2021 (choose among samples with a verifier); for agents, Xia et al. 2025
(AgentRM). The first replies of all rollouts are sampled in one batch. A rollout that solves the
task ends the search. Executing the best one needs no model call.
"""

from __future__ import annotations

from palaestra.agents.search.base import Count, SearchAgent, Temperature
from palaestra.agents.search.tree import Node, Tree, rank
from palaestra.core.model import Generation


class BestOfN(SearchAgent):
    """Tries `n` rollouts, to the end of the episode or `depth` actions."""

    name = "best_of_n"

    def __init__(
        self,
        *,
        n: Count = 4,
        depth: Count = 50,
        scorer: str = "reward",
        temperature: Temperature = 1.0,
    ) -> None:
        super().__init__(scorer=scorer, temperature=temperature)
        self.n, self.depth = n, depth

    async def search(self, tree: Tree) -> Node | None:
        ends: list[Node] = []
        for first in await tree.sample(tree.root, self.n):
            end = await self._try(tree, first)
            if end is not None:
                ends.append(end)
            if tree.holds_solution():
                break
        return max(ends, key=rank, default=None)

    async def _try(self, tree: Tree, first: Generation) -> Node | None:
        """Return the last state of the rollout that begins with `first`; None if it has none."""
        node, replies = tree.root, [first]
        while replies:
            child = await tree.attempt(node, replies[0], scored=False)
            if child is None:
                break
            node = child
            replies = await tree.sample(node, 1) if node.depth < self.depth else []
        if node is tree.root:
            return None
        if node.point is not None:
            await tree.trial.back(node.point)
        await tree.judge(node)
        return node
