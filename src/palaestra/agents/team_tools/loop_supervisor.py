"""Supervisor: a member of a team that is no model, and halts its talk once a member repeats itself.

It counts what each member said. Needs the right "halt". Source: Talebirad and Nadiri 2023 (an agent
that watches the others and ends loops).
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.session import Session
from palaestra.core.team_words import ACCEPT, HALT, replies_in


class SupervisorAgent(Agent):
    """Says halt once a member has said the same several times, without a model."""

    name = "supervisor"

    def __init__(self, *, times: Annotated[int, Field(ge=2)] = 2) -> None:
        """Halt once the same member has said the same `times` times."""
        self.times = times

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen, said = session.observation.text, Counter[tuple[str, str]]()
        while not session.over:
            said.update((reply.member, reply.text) for reply in replies_in(seen))
            looped = any(count >= self.times for count in said.values())
            seen = (await session.act(HALT if looped else ACCEPT)).observation.text
