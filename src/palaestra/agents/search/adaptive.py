"""Adaptive compute: the agent acts directly where its samples agree, and searches elsewhere.

A few proposals are sampled first. The share of the most frequent one measures how easy the state
is: from `agree` on, that proposal is taken without a search. Below, the proposals start a
best-first search whose budget grows with the disagreement.

Source: Snell et al. 2024 (compute by difficulty); agreement as confidence by Wang et al. 2022
(self-consistency).
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from palaestra.agents.search.base import Count, SearchAgent, Temperature
from palaestra.agents.search.best_first import best_first
from palaestra.agents.search.tree import Node, Tree

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class AdaptiveAgent(SearchAgent):
    """Samples `samples` proposals; where they disagree, searches with up to `budget` expansions."""

    name = "adaptive"

    def __init__(
        self,
        *,
        agree: Share = 0.75,
        budget: Count = 8,
        samples: Count = 4,
        depth: Count = 5,
        scorer: str = "reward",
        temperature: Temperature = 1.0,
    ) -> None:
        super().__init__(scorer=scorer, temperature=temperature)
        self.agree, self.budget, self.samples, self.depth = agree, budget, samples, depth

    async def search(self, tree: Tree) -> Node | None:
        proposals = await tree.propose(tree.root, self.samples)
        if not proposals:
            return None
        share = proposals[0].times / self.samples
        if share >= self.agree:
            root = tree.root
            return Node(root.messages, root.signals, parent=root, reply=proposals[0].reply)
        tried = [await tree.attempt(tree.root, proposal.reply) for proposal in proposals]
        open_nodes = [node for node in tried if node is not None and not node.closed]
        expansions = math.ceil(self.budget * (1 - share))
        return await best_first(tree, open_nodes, expansions, self.samples, self.depth)
