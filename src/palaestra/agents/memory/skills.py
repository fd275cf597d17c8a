"""Skills: action sequences that solved a task, stored by name, retrieved, and called by name.

Source: Wang et al. 2023 (Voyager): a library that grows with each success, retrieved by similarity
of tasks, and called by name. A skill is the sequence of valid actions of a solved episode, named
after the first words of its first observation; a later success under the same name replaces it. A
reply that is the name of a skill executes its actions one after the other, until one is invalid or
the episode ends.
"""

from __future__ import annotations

import re

from pydantic import NonNegativeInt

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.cross_episode import Shelf
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.agents.memory.retrieval import best
from palaestra.agents.react import action_of
from palaestra.core.model import Generation
from palaestra.core.session import Session

HEAD = "\n\nSkills that worked before; reply with a name to do all its actions:"
LINE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)
LONGEST = 6  # words of a name


class SkillLibrary(History):
    """A chat that stores its actions as a skill if they solve the task."""

    def __init__(self, instructions: str, first: str, last: Keep, shelf: Shelf, place: str) -> None:
        super().__init__(instructions, first, last)
        self._shelf, self._place = shelf, place

    def keep(self, session: Session) -> None:
        if session.outcome is not None and session.outcome.solved:
            self._shelf.keep(session, self._place)


class SkillsAgent(RememberingAgent):
    """Reuses action sequences that solved similar tasks (Voyager, Wang et al. 2023)."""

    name = "skills"

    def __init__(
        self,
        *,
        k: NonNegativeInt = 3,
        history: Keep = None,
        shelf: str | None = None,
        thoughts: bool = False,
    ) -> None:
        """Show at most `k` skills.

        Skills are stored in the file `shelf`, if given, else in memory. A prompt shows all
        exchanges, or only the last `history`.
        """
        self.k, self.history, self.thoughts = k, history, thoughts
        self.shelf = Shelf(shelf)

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        first, place = session.observation.text, self.shelf.place(session)
        instructions = self.instructions(session)
        if session.first_recorded_call is not None:  # the same prompt as then
            instructions = session.first_recorded_call.messages[0].text
        elif skills := self._skills(place):
            found = best(first, [name.replace("_", " ") for name in skills], self.k)
            lines = [f"{name}: {skills[name]}" for name in (list(skills)[i] for i in found)]
            instructions += "\n".join([HEAD, *lines]) if lines else ""
        return SkillLibrary(instructions, first, self.history, self.shelf, place)

    async def act(self, session: Session, reply: Generation) -> str:
        action = action_of(reply.text)
        assert reply.call is not None  # set by the session
        instructions = session.graph.conversation(reply.call)[0].text
        skills: dict[str, str] = dict(LINE.findall(instructions.partition(HEAD)[2]))
        for step in skills.get(action.removesuffix("()"), action).split("; "):
            transition = await session.act(step, by=reply)
            if session.over or not transition.valid:
                break
        return transition.observation.text

    def _skills(self, place: str) -> dict[str, str]:
        """Return the actions of each skill by name."""
        found: dict[str, str] = {}
        for past in self.shelf.read(place):
            name = "_".join(re.findall(r"[a-z0-9]+", past.first.lower())[:LONGEST])
            if name and past.actions:
                found[name] = "; ".join(past.actions)
        return found
