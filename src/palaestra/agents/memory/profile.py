"""Profiles: facts about a user, rewritten after each conversation and shown in the next.

Source: AI PERSONA (Wang et al. 2024). The task parameter `by` identifies the user; without one, all
episodes of an environment have the same user. For environments with returning users, such as
service desks.
"""

from __future__ import annotations

from palaestra.agents.history import Keep
from palaestra.agents.memory.lessons import Length, LessonAgent
from palaestra.core.errors import InputError
from palaestra.core.session import Session


class ProfileAgent(LessonAgent):
    """Keeps facts about each user across episodes (AI PERSONA, Wang et al. 2024)."""

    name = "profile"
    question = (
        "You keep the profile of a user. Rewrite it after the last conversation: facts, wishes and "
        "habits that will matter next time, one a line. Drop what has proved wrong."
    )
    head = "What is known of this user:"

    def __init__(
        self,
        *,
        by: str | None = None,
        history: Keep = None,
        length: Length = 96,
        shelf: str | None = None,
        thoughts: bool = False,
    ) -> None:
        """Keep a profile per value of the task parameter `by`; the rest as in `LessonAgent`."""
        super().__init__(history=history, length=length, shelf=shelf, thoughts=thoughts)
        self.by = by

    def place(self, session: Session) -> str:
        place = super().place(session)
        if self.by is None:
            return place
        if self.by not in session.task.parameters:
            known = ", ".join(session.task.parameters) or "none"
            raise InputError(
                f"profile?by={self.by}: the task '{session.task.id}' has no such parameter; use "
                f"one of its parameters: {known}."
            )
        return f"{place} of {session.task.parameters[self.by]}"
