"""Plan and execute: write a plan, execute it step by step, and replan when it fails.

Sources: Wang et al. 2023 (Plan-and-Solve) for planning first; Xu et al. 2023 (ReWOO) for
`ask=false`, where the plan's lines are the actions and no observation is read before its end.

A plan fails when an action is invalid, when the executor replies `Replan` (not before the plan's
first action: each plan is tried), or when it is done and the task is not solved.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.agents.numbered_plan import action_log, longer, numbered, steps_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

PLAN = "Write a plan: the actions that solve the task, one a line, numbered."
AGAIN = "The task is not solved yet. Write a new plan from here on, in the same form."
EXECUTE = "Reply with the action that carries it out, or with Replan if it cannot work."


class PlanAgent(Agent):
    """Plan-and-execute: a plan first, then its steps one by one; a new plan when one fails."""

    name = "plan"
    roles = ("planner",)

    def __init__(self, *, ask: bool = True) -> None:
        """Execute each step through a model, or with `ask=false` take it as the action."""
        self.ask = ask

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        planning = [system(session.instructions), user(f"{seen}\n\n{PLAN}")]
        executing = [system(session.instructions)]
        while not session.over:
            plan = await session.generate(planning, role="planner", sampling=longer(session))
            log: list[tuple[str, str]] = []
            for number, step in enumerate(steps_of(plan.text) or [""], 1):
                action, by = step, plan
                if self.ask:
                    now = f"{seen}\n\nStep {number} of the plan: {step}\n{EXECUTE}"
                    executing.append(user(now))
                    reply = await session.generate(executing)
                    executing.append(assistant(reply.text))
                    action, by = reply.text.strip(), reply
                    if log and action.lower().startswith("replan"):
                        break
                transition = await session.act(action, by=by)
                seen = transition.observation.text
                log.append((action, seen))
                if not transition.valid:
                    break
            planning += [assistant(plan.text), user(f"{action_log(log)}\n\n{AGAIN}")]

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].text.endswith((PLAN, AGAIN)):
            return numbered(action.text for action in actions)
        return self.phrase(actions[0])
