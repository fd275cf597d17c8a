"""Skills: action sequences that solved a task, kept by name, found again and reused in one word.

Source: Wang et al. 2023 (Voyager): a library that grows with success, retrieved by what the task
looks like, and called by name. A skill is the sequence of understood actions of a solved episode,
named after the words its first observation begins with; a later success under the same name
replaces it. A reply that is the name of a skill does its actions one after the other, until one is
not understood or the episode ends.
"""

from __future__ import annotations

import re

from pydantic import NonNegativeInt

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.agent import RememberingAgent
from palaestra.agents.memory.memory import Memory
from palaestra.agents.memory.retrieval import best
from palaestra.agents.memory.shelf import Shelf
from palaestra.agents.react import action_of
from palaestra.core.model import Generation
from palaestra.core.session import Session

HEAD = "\n\nSkills that worked before; reply with a name to do all its actions:"
LINE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)
LONGEST = 6  # words of a name


class SkillLibrary(History):
    """A chat; what solves its task is kept as a skill."""

    def __init__(self, told: str, first: str, last: Keep, shelf: Shelf, place: str) -> None:
        super().__init__(told, first, last)
        self._shelf, self._place = shelf, place

    def keep(self, session: Session) -> None:
        if session.outcome is not None and session.outcome.solved:
            self._shelf.keep(session, self._place)


class SkillsAgent(RememberingAgent):
    """Reuses action sequences that solved like tasks, by name (Voyager, Wang et al. 2023)."""

    name = "skills"

    def __init__(
        self,
        *,
        k: NonNegativeInt = 3,
        history: Keep = None,
        shelf: str | None = None,
        thoughts: bool = False,
    ) -> None:
        """At most `k` skills are told.

        They are kept in the file `shelf` where one is named, else in this process. With
        `history`, only so many of the last exchanges are told.
        """
        self.k, self.history, self.thoughts = k, history, thoughts
        self.shelf = Shelf(shelf)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        first, place = session.observation.text, self.shelf.place(session)
        told = self.told(session)
        if session.begun is not None:  # as it was told then
            told = session.begun.messages[0].content
        elif skills := self._skills(place):
            found = best(first, [name.replace("_", " ") for name in skills], self.k)
            lines = [f"{name}: {skills[name]}" for name in (list(skills)[i] for i in found)]
            told += "\n".join([HEAD, *lines]) if lines else ""
        return SkillLibrary(told, first, self.history, self.shelf, place)

    async def act(self, session: Session, reply: Generation) -> str:
        action = action_of(reply.text)
        assert reply.call is not None  # the session gave it
        told = session.graph.conversation(reply.call)[0].content
        skills = dict(LINE.findall(told.partition(HEAD)[2]))
        for step in skills.get(action.removesuffix("()"), action).split("; "):
            transition = await session.act(step, by=reply)
            if session.over or not transition.valid:
                break
        return transition.observation.text

    def _skills(self, place: str) -> dict[str, str]:
        """The actions of each skill, by its name."""
        found: dict[str, str] = {}
        for past in self.shelf.read(place):
            name = "_".join(re.findall(r"[a-z0-9]+", past.first.lower())[:LONGEST])
            if name and past.actions:
                found[name] = "; ".join(past.actions)
        return found
