"""Heterogeneous recursive planning: goals are split while they are pursued, until one is atomic.

Source: Xiong et al. 2025, "Beyond Outlining: Heterogeneous Recursive Planning" (WriteHERE). Its
task types are here two: `[think]`, whose result is a text that later goals see, and `[act]`, which
a controller pursues in the world. Goals are worked through in the order in which they are listed,
where WriteHERE schedules a graph of dependencies; a failed goal fails the one above it, and the
whole task is split anew with the states of all goals in sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from palaestra.agents.controller import Controller, Patience, steered
from palaestra.agents.plans import longer, numbered, steps_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

WIDTH = 10  # sub-goals that are read
WHOLE = "[act] solve the task"
SPLIT = (
    "Reply with Atomic if that goal takes one action or one thought. Else list the goals that it "
    "consists of, one a line, numbered, each beginning with [think] or [act]."
)
THINK = "Reply with what that goal asks for, in a few sentences."


@dataclass
class Goal:
    """A node of the plan."""

    text: str  # its kind first
    state: str = "open"  # or: active, done, failed …, or what was thought
    parts: list[Goal] = field(default_factory=list)

    def shown(self, depth: int = 0) -> str:
        """The goal and its parts with their states, one a line."""
        line = f"{'  ' * depth}- {self.text} ({self.state})"
        return "\n".join([line, *(part.shown(depth + 1) for part in self.parts)])


class RecursiveAgent(Agent):
    """Recursive planning: each goal is split into goals until it is atomic, while acting."""

    name = "recursive"
    roles = ("planner",)

    def __init__(
        self, *, depth: Annotated[int, Field(ge=1, le=3)] = 2, patience: Patience = 4
    ) -> None:
        """Goals are split at most `depth` times; an atomic one may take `patience` actions."""
        self.depth, self.patience = depth, patience

    async def run(self, session: Session) -> None:
        controller = Controller(session)
        root = Goal(WHOLE)
        while not session.over:
            made = len(controller.happened)
            await self._pursue(session, controller, root, root, 0)
            if len(controller.happened) == made:  # it was only thought about
                await controller.reach(WHOLE, self.patience)

    async def _pursue(
        self, session: Session, controller: Controller, root: Goal, goal: Goal, depth: int
    ) -> None:
        goal.state = "active"
        where = f"{controller.seen}\n\nGoals:\n{root.shown()}\n\nThe goal: {goal.text}\n"
        prompt = [system(session.instructions), user(where + SPLIT)]
        parts: list[str] = []
        if depth < self.depth:
            reply = await session.generate(prompt, role="planner", sampling=longer(session))
            atomic = reply.text.strip().lower().startswith("atomic")
            parts = [] if atomic else steps_of(reply.text)[:WIDTH]
        goal.parts = [Goal(part) for part in parts]
        for part in goal.parts:
            await self._pursue(session, controller, root, part, depth + 1)
            if session.over or part.state.startswith("failed"):
                goal.state = "failed in a part"
                return
        if goal.parts:
            goal.state = "done"
        elif goal.text.lower().startswith("[think]"):
            ask = [system(session.instructions), user(where + THINK)]
            thought = await session.generate(ask, sampling=longer(session))
            goal.state = f"thought: {thought.text.strip()}"
        else:
            failure = await controller.reach(goal.text, self.patience)
            goal.state = f"failed: {failure}" if failure else "done"

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        asked = messages[-1].content
        if asked.endswith(SPLIT):
            whole = asked.endswith(f"The goal: {WHOLE}\n{SPLIT}")
            return numbered(f"[act] {a.text}" for a in actions[:WIDTH]) if whole else "Atomic"
        return self.phrase(actions[0])

    def phrase(self, action: Action) -> str:
        return steered(action)
