"""Lookup: a member of a team that is no model, and says what a file knows of what it reads.

It answers with the entries of a knowledge file that have the most phrases in common with all that
it has been shown, and passes where no entry has half of its phrases there. People extend the file.
Source: Zuo et al. 2024 (KG4Diagnosis: a graph of diseases that experts extend).
"""

from __future__ import annotations

from palaestra.core.agent import Agent
from palaestra.core.knowledge_file import best_entries, load_entries
from palaestra.core.session import Session
from palaestra.core.team_words import PASS


class LookupAgent(Agent):
    """Says the entries of a file that fit what it reads, without a model."""

    name = "lookup"

    def __init__(self, *, file: str) -> None:
        """Load a bundled knowledge file by its name, or a TOML file.

        Raises:
            InputError: the file cannot be used.
        """
        self.entries = load_entries(file)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        while not session.over:
            found = best_entries(self.entries, seen)
            reply = "\n".join(entry.say for entry in found) or PASS
            seen += "\n" + (await session.act(reply)).observation.text
