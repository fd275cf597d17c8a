"""Lessons: each episode begins with a lesson that a model writes about the one before.

At its start an episode asks the model, in the role "memory", for a lesson from the latest episode
of its place, given that episode's own lesson. The question is the first call of the episode, so it
is trained on the lesson's value: the outcome of the episode that uses it. An interrupted episode
repeats the same question. Subclasses define the question and the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.cross_episode import Shelf
from palaestra.agents.memory.memory_agent import ROLE, RememberingAgent, ask
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

Length = Annotated[int, Field(ge=1)]
LONGEST = 4000  # characters of an episode in the prompt: its end


class LessonAgent(RememberingAgent):
    """The base of agents that carry a lesson from each episode to the next of the same place."""

    roles = (ROLE,)
    question: ClassVar[str]
    head: ClassVar[str]  # above the lesson

    def __init__(
        self,
        *,
        history: Keep = None,
        length: Length = 96,
        shelf: str | None = None,
        thoughts: bool = False,
    ) -> None:
        """Limit a lesson to `length` tokens.

        Episodes are stored in the file `shelf`, if given, else in memory. A prompt shows all
        exchanges, or only the last `history`.
        """
        self.history, self.length, self.thoughts = history, length, thoughts
        self.shelf = Shelf(shelf)

    def place(self, session: Session) -> str:
        """Return the key of the episodes that share lessons with this one."""
        return self.shelf.place(session)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Lessons(
            self, self.instructions(session), session.observation.text, self.place(session)
        )

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[0].text == self.question:
            return self.lesson(actions)
        return super().answer(messages, actions)

    def lesson(self, actions: Sequence[Action]) -> str:
        """Return the lesson that a model with the oracle plan writes."""
        return "\n".join(dict.fromkeys(action.text for action in actions[:4]))


class Lessons(History):
    """A chat whose instructions end with the lesson."""

    def __init__(self, agent: LessonAgent, instructions: str, first: str, place: str) -> None:
        super().__init__(instructions, first, agent.history)
        self._agent, self._place = agent, place
        self._lesson: str | None = None  # None: not asked for yet

    async def update(self, session: Session) -> None:
        if self._lesson is None:
            question = self._question(session)
            self._lesson = await ask(session, question, self._agent.length) if question else ""
            if self._lesson:
                self.instructions += f"\n\n{self._agent.head}\n{self._lesson}"

    def keep(self, session: Session) -> None:
        self._agent.shelf.keep(session, self._place, self._lesson or "")

    def _question(self, session: Session) -> list[Message]:
        """Return the prompt for a lesson; empty in the first episode of a place."""
        if session.first_recorded_call is not None:
            return (
                list(session.first_recorded_call.messages)
                if session.first_recorded_call.role == ROLE
                else []
            )
        before = self._agent.shelf.read(self._place)
        if not before:
            return []
        last = before[-1]
        known = f"{self._agent.head}\n{last.told}\n\n" if last.told else ""
        text = f"{known}The last episode:\n{last.story[-LONGEST:]}"
        return [system(self._agent.question), user(text)]
