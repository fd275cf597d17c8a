"""Heterogeneous recursive planning: goals are split during execution until they are atomic.

Source: Xiong et al. 2025, "Beyond Outlining: Heterogeneous Recursive Planning" (WriteHERE). There
are two task types: `[think]`, whose result is a text that later goals see, and `[act]`, which a
controller pursues in the environment. Goals are processed in the order in which they are listed,
where WriteHERE schedules a graph of dependencies. A failed goal fails its parent goal, and the
whole task is split again with the states of all goals in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from palaestra.agents.controller import Controller, Patience, reply_for
from palaestra.agents.numbered_plan import longer, numbered, steps_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

WIDTH = 10  # sub-goals parsed from a reply
WHOLE = "[act] solve the task"
SPLIT = (
    "Reply with Atomic if that goal takes one action or one thought. Else list the goals that it "
    "consists of, one a line, numbered, each beginning with [think] or [act]."
)
THINK = "Reply with what that goal asks for, in a few sentences."


@dataclass
class Goal:
    """A node of the goal tree."""

    text: str  # begins with its type
    state: str = "open"  # or: active, done, failed …, or a thought
    parts: list[Goal] = field(default_factory=list)

    def shown(self, depth: int = 0) -> str:
        """Format the goal and its sub-goals with their states, one per line."""
        line = f"{'  ' * depth}- {self.text} ({self.state})"
        return "\n".join([line, *(part.shown(depth + 1) for part in self.parts)])


class RecursiveAgent(Agent):
    """Recursive planning: splits goals into sub-goals until they are atomic, while acting."""

    name = "recursive"
    roles = ("planner",)

    def __init__(
        self, *, depth: Annotated[int, Field(ge=1, le=3)] = 2, patience: Patience = 4
    ) -> None:
        """Split goals at most `depth` times; an atomic goal may take `patience` actions."""
        self.depth, self.patience = depth, patience

    async def run(self, session: Session) -> None:
        controller = Controller(session)
        root = Goal(WHOLE)
        while not session.over:
            before = len(controller.log)
            await self._pursue(session, controller, root, root, 0)
            if len(controller.log) == before:  # all goals were of type [think]
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
        asked = messages[-1].text
        if asked.endswith(SPLIT):
            whole = asked.endswith(f"The goal: {WHOLE}\n{SPLIT}")
            return numbered(f"[act] {a.text}" for a in actions[:WIDTH]) if whole else "Atomic"
        return self.phrase(actions[0])

    def phrase(self, action: Action) -> str:
        return reply_for(action)
