"""DEPS: describe what failed, explain why, plan again, and select the next goal.

Source: Wang et al. 2023, "Describe, Explain, Plan and Select". In the paper, the selector is a
trained predictor of how many steps a goal will take, and the controller is a goal-conditioned
policy. Here both are prompted models; the selector has its own role.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.agents.controller import Controller, Patience, reply_for
from palaestra.agents.numbered_plan import action_log, longer, numbered, steps_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

WHOLE = "solve the task"
PLAN = "List the goals that together solve the task, one a line, numbered."
DESCRIBE = "Describe in a sentence or two where you stand and what went wrong."
EXPLAIN = "Explain why the plan failed."
AGAIN = "List the goals from here on, so that this does not happen again."
SELECT = "Which of these goals can be reached soonest from here? Reply with its number."


class DepsAgent(Agent):
    """DEPS: plans goals, pursues the one reached soonest, and explains failures."""

    name = "deps"
    roles = ("planner", "selector")

    def __init__(self, *, patience: Patience = 8) -> None:
        """Let a goal fail after `patience` actions."""
        self.patience = patience

    async def run(self, session: Session) -> None:
        controller = Controller(session)
        messages = [system(session.instructions), user(f"{controller.seen}\n\n{PLAN}")]
        while not session.over:
            goals = steps_of(await _ask_planner(session, messages)) or [WHOLE]
            start, failure = len(controller.log), ""
            while goals and not failure:
                goal = goals.pop(await _selected(session, controller.seen, goals))
                failure = await controller.reach(goal, self.patience)
                if failure:
                    failure = f"The goal '{goal}' failed: {failure}."
            log = action_log(controller.log[start:])
            failure = failure or "All goals were reached, but the task is not solved."
            for ask in (f"{log}\n\n{failure} {DESCRIBE}", EXPLAIN):
                messages.append(user(ask))
                await _ask_planner(session, messages)
            messages.append(user(AGAIN))

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        asked = messages[-1].text
        if asked.endswith((PLAN, AGAIN)):
            return numbered(action.text for action in actions)
        if asked.endswith(SELECT):
            return "1"
        if asked.endswith((DESCRIBE, EXPLAIN)):
            return f"The next action should be: {actions[0].text}"
        return self.phrase(actions[0])

    def phrase(self, action: Action) -> str:
        return reply_for(action)


async def _ask_planner(session: Session, messages: list[Message]) -> str:
    reply = await session.generate(messages, role="planner", sampling=longer(session))
    messages.append(assistant(reply.text))
    return reply.text


async def _selected(session: Session, seen: str, goals: Sequence[str]) -> int:
    """Return the index of the selected goal; 0 if the reply names none."""
    if len(goals) == 1:
        return 0
    ask = f"{seen}\n\nGoals:\n{numbered(goals)}\n\n{SELECT}"
    reply = await session.generate([system(session.instructions), user(ask)], role="selector")
    found = re.search(r"\d{1,3}", reply.text)
    index = int(found[0]) - 1 if found else 0
    return index if 0 <= index < len(goals) else 0
