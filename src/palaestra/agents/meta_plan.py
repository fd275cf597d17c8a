"""MPO: one meta plan, written once for a family of tasks, guides all of its tasks.

Source: Xiong et al. 2025, "MPO: Boosting LLM Agents with Meta Plan Optimization". The planner sees
the environment's instructions, not the current task, so one plan fits the whole family. To optimise
it, train the role "planner" on the return of its plans: by reinforcement, or by DPO on plans with
different outcomes as in the paper (`palaestra agents learn policy RUN --role planner`; see
docs/agents.md for all steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palaestra.agents.history import History, Keep
from palaestra.agents.numbered_plan import longer, numbered
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
    """MPO: a chat guided by a general plan, written once from the environment's instructions."""

    name = "meta"
    roles = ("planner",)

    def __init__(self, *, plan: str = "", history: Keep = None) -> None:
        """Follow `plan`: a text, or `@FILE` for the text of a file; the planner's if empty.

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
        history = History(guided, session.observation.text, self.history)
        while not session.over:
            reply = await session.generate(history.messages)
            transition = await session.act(reply.text.strip(), by=reply)
            history.add(reply.message, transition.observation.text)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].text == PLAN:
            return numbered(action.text for action in actions)
        return self.phrase(actions[0])


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise InputError(
            f"The plan '{path}' cannot be read: {error}. Name a text file behind '@'."
        ) from None
