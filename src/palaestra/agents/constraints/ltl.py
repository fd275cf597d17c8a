"""The LTL agent: its actions always satisfy a formula of temporal logic.

Source: Crouse et al. 2023 (formally specifying the behaviour of LLM-based agents); the formulas
are those of `temporal_logic.py`. Before each action the agent computes which of the environment's
actions keep the formula satisfiable within the remaining turns, and constrained decoding limits
the reply to these. A model without constrained decoding, or in an environment that lists no
actions, is asked again after a forbidden action; then the first allowed action is taken. Where no
action is allowed, the agent gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.environment import Capability
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.obligations import Monitor
from palaestra.core.rare_capabilities import stated_actions
from palaestra.core.session import Session
from palaestra.core.temporal_logic import Moment, parse

RULE = "\nWhat you do must satisfy this formula of temporal logic: "
FORBIDDEN = "That is forbidden now. "


class LTLAgent(Agent):
    """As `direct`, but chooses only among the actions that a formula allows."""

    name = "ltl"

    def __init__(self, *, formula: str = "true", again: Annotated[int, Field(ge=0)] = 1) -> None:
        """Limit actions to `formula`; `true` limits replies to the listed actions only.

        Args:
            formula: see `temporal_logic.py`; on a command line, `and` for `&`.
            again: how often a model without constrained decoding is asked again.

        Raises:
            InputError: the formula cannot be parsed, or nothing satisfies it.
        """
        self.formula, self.parsed, self.again = formula, parse(formula), again
        Monitor(self.parsed)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        monitor, seen = Monitor(self.parsed), session.observation.text
        instructions = session.instructions + (
            RULE + self.formula if self.formula != "true" else ""
        )
        messages = [system(instructions), user(seen)]
        while not session.over:
            listed = await listed_actions(session)
            turns_left = session.turns_left
            allowed = monitor.allowed(seen, listed, turns_left)
            if listed and not allowed:
                return
            if listed and session.can_choose():
                constrained = replace(session.sampling, choices=tuple(allowed), stop=())
                reply: Generation | None = await session.generate(messages, sampling=constrained)
            else:
                reply = await self._ask_freely(
                    session, messages, monitor, allowed, bool(listed), turns_left
                )
            if reply is None and not allowed:
                return
            text = allowed[0] if reply is None else reply.text
            monitor.advance(Moment(seen, text.strip()))
            seen = (await session.act(text.strip(), by=reply)).observation.text
            messages += [assistant(text), user(seen)]

    async def _ask_freely(
        self,
        session: Session,
        messages: Sequence[Message],
        monitor: Monitor,
        allowed: Sequence[str],
        listed: bool,
        turns_left: int | None,
    ) -> Generation | None:
        """Return an allowed reply, sampled without constraints; None if the model gave none."""
        assert messages
        conversation, seen = list(messages), messages[-1].text
        for _ in range(self.again + 1):
            reply = await session.generate(conversation)
            action = reply.text.strip()
            fits = (
                action in allowed if listed else bool(monitor.allowed(seen, [action], turns_left))
            )
            if fits:
                return reply
            advice = f"Choose one of: {', '.join(allowed)}" if listed else "Do something else."
            conversation += [reply.message, user(FORBIDDEN + advice)]
        return None


async def listed_actions(session: Session) -> list[str]:
    """Return the actions that the environment lists now; empty if it lists none, as with tools."""
    if Capability.ADMISSIBLE in session.environment.capabilities:
        return list(dict.fromkeys(await session.environment.admissible()))
    return [] if session.tools else stated_actions(session.instructions)
