"""Lessons: what is learnt from an episode once it is over, and told at the start of the next one.

At its start an episode asks the model, in the role "memory", what the latest episode of its place
teaches, given what that one had been told. The question is the first call of the episode, so it is
trained on what the lesson is worth: the outcome of the episode that acts on it. An episode that was
cut off asks what it asked then. Subclasses say what is learnt, and where it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.agent import ROLE, RememberingAgent, ask
from palaestra.agents.memory.memory import Memory
from palaestra.agents.memory.shelf import Shelf
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

Length = Annotated[int, Field(ge=1)]
LONGEST = 4000  # characters of an episode that are told, its end


class LessonAgent(RememberingAgent):
    """Learns from each episode what is told in the next one of the same place."""

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
        """A lesson has at most `length` tokens.

        Episodes are kept in the file `shelf` where one is named, else in this process. With
        `history`, only so many of the last exchanges are told.
        """
        self.history, self.length, self.thoughts = history, length, thoughts
        self.shelf = Shelf(shelf)

    def place(self, session: Session) -> str:
        """Where the lessons of this episode hold."""
        return self.shelf.place(session)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        return Lessons(self, self.told(session), session.observation.text, self.place(session))

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[0].content == self.question:
            return self.lesson(actions)
        return super().answer(messages, actions)

    def lesson(self, actions: Sequence[Action]) -> str:
        """What a model that knows the way would say there is to learn."""
        return "\n".join(dict.fromkeys(action.text for action in actions[:4]))


class Lessons(History):
    """A chat whose instructions end with what was learnt."""

    def __init__(self, agent: LessonAgent, told: str, first: str, place: str) -> None:
        super().__init__(told, first, agent.history)
        self._agent, self._place = agent, place
        self._lesson: str | None = None  # not asked for yet

    async def update(self, session: Session) -> None:
        if self._lesson is None:
            question = self._question(session)
            self._lesson = await ask(session, question, self._agent.length) if question else ""
            if self._lesson:
                self.instructions += f"\n\n{self._agent.head}\n{self._lesson}"

    def keep(self, session: Session) -> None:
        self._agent.shelf.keep(session, self._place, self._lesson or "")

    def _question(self, session: Session) -> list[Message]:
        """What to ask at the start; nothing in the first episode of a place."""
        if session.begun is not None:
            return list(session.begun.messages) if session.begun.role == ROLE else []
        before = self._agent.shelf.read(self._place)
        if not before:
            return []
        last = before[-1]
        known = f"{self._agent.head}\n{last.told}\n\n" if last.told else ""
        told = f"{known}The last episode:\n{last.story[-LONGEST:]}"
        return [system(self._agent.question), user(told)]
