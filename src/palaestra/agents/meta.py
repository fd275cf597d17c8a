"""MPO: a meta plan, made once for a family of tasks, guides every task of it.

Source: Xiong et al. 2025, "MPO: Boosting LLM Agents with Meta Plan Optimization". The planner sees
what the world says of itself, not the task at hand, so one plan is right for the whole family.
Optimising it is training the role "planner" by what its plans earn: by reinforcement, or as the
paper does by DPO on plans that fared differently (`palaestra agents learn policy RUN --role
planner`; docs/agents.md has the whole road).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palaestra.agents.history import History, Keep
from palaestra.agents.plans import longer, numbered
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

PLAN = (
    "Write a general plan in a few numbered steps that is right for every task of this kind. "
    "Name no details that differ from task to task."
)


class MetaAgent(Agent):
    """MPO: a chat guided by a general plan, made once from what the world says of itself."""

    name = "meta"
    roles = ("planner",)

    def __init__(self, *, plan: str = "", history: Keep = None) -> None:
        """With `plan`, that text, or the text of the file named behind `@`, is the plan.

        Raises:
            InputError: the file cannot be read.
        """
        self.plan = _read(plan[1:]) if plan.startswith("@") else plan
        self.history = history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        plan = self.plan
        if not plan:
            ask = [system(session.instructions), user(PLAN)]
            plan = (await session.generate(ask, role="planner", sampling=longer(session))).text
        guided = f"{session.instructions}\nFollow this plan:\n{plan.strip()}"
        past = History(guided, session.observation.text, self.history)
        while not session.over:
            reply = await session.generate(past.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            past.add(reply.text, transition.observation.text)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].content == PLAN:
            return numbered(action.text for action in actions)
        return self.phrase(actions[0])


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise InputError(f"The plan '{path}' cannot be read: {error}.") from None
