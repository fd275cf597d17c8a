"""Curator: a member of a team that is no model, and checks what others extract from documents.

It accepts the last proposal that it reads if its knowledge file could take it, and else says why it
could not: an unknown relation, a missing part, or a contradiction to what the file says.
Source: Zuo et al. 2024 (KG4Diagnosis: triples are checked before they join the graph).
"""

from __future__ import annotations

from palaestra.core.agent import Agent
from palaestra.core.knowledge_file import load_entries
from palaestra.core.knowledge_triples import refusal, relations_of
from palaestra.core.session import Session
from palaestra.core.team_words import ACCEPT, PASS, WRONG, replies_in


class CuratorAgent(Agent):
    """Checks what is to join a knowledge file against the file, without a model."""

    name = "curator"

    def __init__(self, *, file: str) -> None:
        """Load a bundled knowledge file by its name, or a TOML file.

        Raises:
            InputError: the file cannot be used, or its entries do not say the same parts.
        """
        self.entries = load_entries(file)
        relations_of(self.entries)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        while not session.over:
            proposals = [reply.text for reply in replies_in(seen) if reply.proposes]
            reply = PASS
            if proposals:
                why = refusal(proposals[-1], self.entries)
                reply = ACCEPT if why is None else f"{WRONG}: {why}"
            seen = (await session.act(reply)).observation.text
