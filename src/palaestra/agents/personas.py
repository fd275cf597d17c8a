"""Solo performance prompting: one model speaks as several persons who agree on the action.

Source: Wang et al. 2023 (unleashing cognitive synergy). All in one reply: the model names the
persons whose knowledge the step needs, lets them propose, criticise and revise in turn, and closes
with `Action: …` on a line of its own. It costs one call for each action, and its tokens.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.plans import longer
from palaestra.agents.react import action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session

FORMAT = """\
Before each action, work it out as several persons, yourself among them:
Participants: at most {persons}, those whose knowledge helps here
Name: what this person proposes or finds wrong, in one line; they speak in turn, until all agree
Action: one action"""


class PersonasAgent(Agent):
    """A chat with a talk among persons before each action."""

    name = "personas"

    def __init__(self, *, persons: Annotated[int, Field(ge=2)] = 3, history: Keep = None) -> None:
        """At most so many `persons` take part."""
        self.persons, self.history = persons, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        told = f"{session.instructions}\n{FORMAT.format(persons=self.persons)}"
        past = History(told, session.observation.text, self.history)
        while not session.over:
            reply = await session.generate(past.messages, sampling=longer(session))
            transition = await session.act(action_of(reply.text), by=reply)
            past.add(reply.text, transition.observation.text)

    def phrase(self, action: Action) -> str:
        return (
            "Participants: Solver (you), Expert of this world\n"
            f"Expert of this world: I propose {action.text}.\n"
            "Solver (you): Agreed.\n"
            f"Action: {action.text}"
        )
