"""DEPS: describe what failed, explain why, plan anew, and select the goal to go for next.

Source: Wang et al. 2023, "Describe, Explain, Plan and Select". There, the selector is a trained
predictor of how many steps a goal will take, and the controller a goal-conditioned policy; here
both are models asked in words, the selector in a role of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.agents.controller import Controller, Patience, steered
from palaestra.agents.plans import longer, numbered, steps_of, told
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
    """DEPS: goals are planned, the soonest one is selected, and failures are explained."""

    name = "deps"
    roles = ("planner", "selector")

    def __init__(self, *, patience: Patience = 8) -> None:
        """A goal fails after `patience` actions."""
        self.patience = patience

    async def run(self, session: Session) -> None:
        controller = Controller(session)
        talk = [system(session.instructions), user(f"{controller.seen}\n\n{PLAN}")]
        while not session.over:
            goals = steps_of(await _said(session, talk)) or [WHOLE]
            start, failure = len(controller.happened), ""
            while goals and not failure:
                goal = goals.pop(await _soonest(session, controller.seen, goals))
                failure = await controller.reach(goal, self.patience)
                if failure:
                    failure = f"The goal '{goal}' failed: {failure}."
            story = told(controller.happened[start:])
            failure = failure or "All goals were reached, but the task is not solved."
            for ask in (f"{story}\n\n{failure} {DESCRIBE}", EXPLAIN):
                talk.append(user(ask))
                await _said(session, talk)
            talk.append(user(AGAIN))

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        asked = messages[-1].content
        if asked.endswith((PLAN, AGAIN)):
            return numbered(action.text for action in actions)
        if asked.endswith(SELECT):
            return "1"
        if asked.endswith((DESCRIBE, EXPLAIN)):
            return f"The next action should be: {actions[0].text}"
        return self.phrase(actions[0])

    def phrase(self, action: Action) -> str:
        return steered(action)


async def _said(session: Session, talk: list[Message]) -> str:
    reply = await session.generate(talk, role="planner", sampling=longer(session))
    talk.append(assistant(reply.text))
    return reply.text


async def _soonest(session: Session, seen: str, goals: Sequence[str]) -> int:
    """The place of the selected goal; of the first one where the reply names none."""
    if len(goals) == 1:
        return 0
    ask = f"{seen}\n\nGoals:\n{numbered(goals)}\n\n{SELECT}"
    reply = await session.generate([system(session.instructions), user(ask)], role="selector")
    found = re.search(r"\d{1,3}", reply.text)
    place = int(found[0]) - 1 if found else 0
    return place if 0 <= place < len(goals) else 0
