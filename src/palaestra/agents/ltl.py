"""The LTL agent: what it does keeps to a formula of temporal logic, whatever the model would like.

Source: Crouse et al. 2023 (formally specifying the behaviour of LLM-based agents); the formulas
are those of `palaestra.safety.temporal_logic`. Before each action it works out which of the world's
actions leave the formula satisfiable within the turns that are left, and the model's reply is held
to these by its decoder. Models that cannot be held so, and worlds that list no actions, are asked
again when their action is forbidden; then the first allowed one is taken. Where nothing is allowed
the agent gives up: it does rather nothing than what is forbidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.environment import Capability, stated_actions
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.safety.obligations import Monitor
from palaestra.safety.temporal_logic import Moment, parse

RULE = "\nWhat you do must satisfy this formula of temporal logic: "
FORBIDDEN = "That is forbidden now. "


class LTLAgent(Agent):
    """As `direct`, with every action chosen among those that the formula allows."""

    name = "ltl"

    def __init__(self, *, formula: str = "true", again: Annotated[int, Field(ge=0)] = 1) -> None:
        """With the formula `true`, replies are held to the actions that the world lists.

        Args:
            formula: see `palaestra.safety.temporal_logic`; on a command line, `and` for `&`.
            again: how often a model that cannot be held to choices is asked again.

        Raises:
            InputError: the formula cannot be read, or nothing satisfies it.
        """
        self.formula, self.parsed, self.again = formula, parse(formula), again
        Monitor(self.parsed)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        rule, seen = Monitor(self.parsed), session.observation.text
        told = session.instructions + (RULE + self.formula if self.formula != "true" else "")
        messages = [system(told), user(seen)]
        while not session.over:
            listed = await listed_actions(session)
            left = session.turns_left
            allowed = rule.allowed(seen, listed, left)
            if listed and not allowed:
                return
            if listed and session.can_choose():
                held = replace(session.sampling, choices=tuple(allowed), stop=())
                reply: Generation | None = await session.generate(messages, sampling=held)
            else:
                reply = await self._asked(session, messages, rule, allowed, bool(listed), left)
            if reply is None and not allowed:
                return
            said = allowed[0] if reply is None else reply.text
            rule.take(Moment(seen, said.strip()))
            seen = (await session.act(said.strip(), by=reply)).observation.text
            messages += [assistant(said), user(seen)]

    async def _asked(
        self,
        session: Session,
        messages: Sequence[Message],
        rule: Monitor,
        allowed: Sequence[str],
        listed: bool,
        left: int | None,
    ) -> Generation | None:
        """An allowed reply of a model that says what it likes; None: it gave none."""
        assert messages
        talk, seen = list(messages), messages[-1].content
        for _ in range(self.again + 1):
            reply = await session.generate(talk)
            action = reply.text.strip()
            fits = action in allowed if listed else bool(rule.allowed(seen, [action], left))
            if fits:
                return reply
            advice = f"Choose one of: {', '.join(allowed)}" if listed else "Do something else."
            talk += [assistant(reply.text), user(FORBIDDEN + advice)]
        return None


async def listed_actions(session: Session) -> list[str]:
    """What the world says can be done now; empty where it lists nothing, as with tools."""
    if Capability.ADMISSIBLE in session.world.capabilities:
        return list(dict.fromkeys(await session.world.admissible()))
    return [] if session.tools else stated_actions(session.instructions)
