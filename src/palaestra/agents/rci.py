"""RCI: a plan is criticised and improved, and each action is grounded, before it is taken.

Source: Kim, Baldi and McAleer 2023, "Language Models can Solve Computer Tasks". The plan goes
through explicit rounds of critique and improvement, until a critique finds nothing. Each action
goes through implicit ones: by the plan (task grounding), by what is seen now (state grounding),
and by what can be done at all (agent grounding); the last word of the three is acted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.plans import longer, numbered, steps_of
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
    """RCI: plans and actions are criticised and improved before anything is done."""

    name = "rci"
    roles = ("planner", "critic")

    def __init__(self, *, rounds: Annotated[int, Field(ge=0)] = 1, history: Keep = None) -> None:
        """The plan is criticised at most `rounds` times."""
        self.rounds, self.history = rounds, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        plan = await self._plan(session, session.observation.text)
        planned = f"{session.instructions}\nYour plan:\n{plan}"
        past = History(planned, session.observation.text, self.history)
        while not session.over:
            talk = past.messages
            by_plan = f"{talk.pop().content}\n\n{GROUNDINGS[0]}"
            for ask in (by_plan, *GROUNDINGS[1:]):
                talk.append(user(ask))
                reply = await session.generate(talk)
                talk.append(assistant(reply.text))
            transition = await session.act(reply.text.strip(), by=reply)
            past.add(reply.text, transition.observation.text)

    async def _plan(self, session: Session, seen: str) -> str:
        room = longer(session)
        talk = [system(session.instructions), user(f"{seen}\n\n{PLAN}")]
        plan = (await session.generate(talk, role="planner", sampling=room)).text
        for _ in range(self.rounds):
            talk += [assistant(plan), user(CRITICISE)]
            critique = (await session.generate(talk, role="critic", sampling=room)).text
            if "no problem" in critique.lower():
                break
            talk += [assistant(critique), user(IMPROVE)]
            plan = (await session.generate(talk, role="planner", sampling=room)).text
        return plan.strip()

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        asked = messages[-1].content
        if asked.endswith((PLAN, IMPROVE)):
            return numbered(action.text for action in actions)
        if asked == CRITICISE:
            return _critique(steps_of(messages[-2].content), [action.text for action in actions])
        return self.phrase(actions[0])


def _critique(plan: Sequence[str], right: Sequence[str]) -> str:
    """The first step in which a plan differs from the one that is known to be right."""
    for number, step in enumerate(right):
        if number >= len(plan) or plan[number] != step.strip():
            return f"Step {number + 1} should be: {step}"
    return "No problem."
