"""Solo performance prompting: one model plays several personas who agree on the action.

Source: Wang et al. 2023 (unleashing cognitive synergy). In one reply, the model names the personas
whose knowledge the step needs, lets them propose, criticise and revise in turn, and ends with
`Action: …` on its own line. The cost is one longer call per action.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.numbered_plan import longer
from palaestra.agents.react import action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session

FORMAT = """\
Before each action, work it out as several persons, yourself among them:
Participants: {participants}
Name: what this person proposes or finds wrong, in one line; they speak in turn, until all agree
Action: one action"""


class PersonasAgent(Agent):
    """A chat with a discussion among personas before each action."""

    name = "personas"

    def __init__(
        self,
        *,
        persons: Annotated[int, Field(ge=2)] = 3,
        participants: str = "",
        history: Keep = None,
    ) -> None:
        """Let at most `persons` personas take part, whom the model chooses for each action.

        With `participants`, a list of names, they are always the same: the paper's fixed personas.
        """
        chosen = f"at most {persons}, those whose knowledge helps here"
        self.participants, self.history = participants or chosen, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        instructions = f"{session.instructions}\n{FORMAT.format(participants=self.participants)}"
        history = History(instructions, session.observation.text, self.history)
        while not session.over:
            reply = await session.generate(history.messages, sampling=longer(session))
            transition = await session.act(action_of(reply.text), by=reply)
            history.add(reply.message, transition.observation.text)

    def phrase(self, action: Action) -> str:
        return (
            "Participants: Solver (you), Expert of this world\n"
            f"Expert of this world: I propose {action.text}.\n"
            "Solver (you): Agreed.\n"
            f"Action: {action.text}"
        )
