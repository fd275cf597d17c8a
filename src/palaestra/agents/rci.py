"""RCI: the plan is criticised and improved, and each action is grounded before it is taken.

Source: Kim, Baldi and McAleer 2023, "Language Models can Solve Computer Tasks". The plan goes
through explicit rounds of critique and improvement, until a critique finds no problem. Each action
goes through three implicit rounds: by the plan (task grounding), by the current observation (state
grounding), and by the valid actions (agent grounding). The last reply is the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.numbered_plan import longer, numbered, steps_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

PLAN = "Write a plan: the actions that solve the task, one a line, numbered."
CRITICISE = 'Find problems with this plan. If there are none, reply "No problem".'
IMPROVE = "Write the improved plan, in the same form."
GROUNDINGS = (
    "By the plan, what is the next action? Reply with the action alone.",
    "Is it right for what you see now? Reply with the right action alone.",
    "Is it one of the actions that exist, in the exact words? Reply with those words alone.",
)


class RciAgent(Agent):
    """RCI: criticises and improves plans and actions before it acts."""

    name = "rci"
    roles = ("planner", "critic")

    def __init__(self, *, rounds: Annotated[int, Field(ge=0)] = 1, history: Keep = None) -> None:
        """Criticise the plan at most `rounds` times."""
        self.rounds, self.history = rounds, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        plan = await self._plan(session, session.observation.text)
        planned = f"{session.instructions}\nYour plan:\n{plan}"
        history = History(planned, session.observation.text, self.history)
        while not session.over:
            *messages, seen = history.messages
            by_plan = f"{seen.text}\n\n{GROUNDINGS[0]}"
            for ask in (by_plan, *GROUNDINGS[1:]):
                messages.append(user(ask))
                reply = await session.generate(messages)
                messages.append(assistant(reply.text))
            transition = await session.act(reply.text.strip(), by=reply)
            history.add(reply.message, transition.observation.text)

    async def _plan(self, session: Session, seen: str) -> str:
        sampling = longer(session)
        messages = [system(session.instructions), user(f"{seen}\n\n{PLAN}")]
        plan = (await session.generate(messages, role="planner", sampling=sampling)).text
        for _ in range(self.rounds):
            messages += [assistant(plan), user(CRITICISE)]
            critique = (await session.generate(messages, role="critic", sampling=sampling)).text
            if "no problem" in critique.lower():
                break
            messages += [assistant(critique), user(IMPROVE)]
            plan = (await session.generate(messages, role="planner", sampling=sampling)).text
        return plan.strip()

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        asked = messages[-1].text
        if asked.endswith((PLAN, IMPROVE)):
            return numbered(action.text for action in actions)
        if asked == CRITICISE:
            return _critique(steps_of(messages[-2].text), [action.text for action in actions])
        return self.phrase(actions[0])


def _critique(plan: Sequence[str], right: Sequence[str]) -> str:
    """Name the first step in which a plan differs from the right one."""
    for number, step in enumerate(right):
        if number >= len(plan) or plan[number] != step.strip():
            return f"Step {number + 1} should be: {step}"
    return "No problem."
