"""GoalAct: one global plan, rewritten after each observation, and an executor that follows it.

Sources: Chen et al. 2025 (GoalAct) for the continuously updated global plan and its execution by
skills; PilotRL and its AdaPlan (2025) for planner and executor as two roles of one policy, which
can be trained separately or together. There are no skills above the environment's own actions.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.agents.numbered_plan import longer, numbered
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

PLAN = "Write the whole plan from here on: the steps still to be done, one a line, numbered."
EXECUTE = "Reply with the action for the plan's first step."


class GoalAgent(Agent):
    """GoalAct: rewrites a global plan each turn, and executes its first step."""

    name = "goal"
    roles = ("planner",)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        planning, executing = [system(session.instructions)], [system(session.instructions)]
        while not session.over:
            planning.append(user(f"{seen}\n\n{PLAN}"))
            plan = await session.generate(planning, role="planner", sampling=longer(session))
            planning.append(plan.message)
            executing.append(user(f"{seen}\n\nPlan:\n{plan.text.strip()}\n\n{EXECUTE}"))
            reply = await session.generate(executing)
            executing.append(reply.message)
            action = reply.text.strip()
            transition = await session.act(action, by=reply)
            seen = f"> {action}\n{transition.observation.text}"

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].text.endswith(PLAN):
            return numbered(action.text for action in actions)
        return self.phrase(actions[0])
