"""Segments: a formula states which kinds of segment an agent writes, and in what order.

Source: Crouse et al. 2023, where common agents are formulas over their segments. Here a moment is a
segment, `think` or `act`, and an observation follows each `act`:

    G act                                               acts at once, as `direct` does
    think and G(think -> X act) and G(act -> N think)   a thought before each action, as in ReAct
    think and N G act                                   thinks once, at the start
    G(think -> seen door)                               thinks where a door is seen

Where the formula allows both kinds, the model chooses, by constrained decoding if it supports that.
Actions are limited to those that the environment lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palaestra.agents.constraints.ltl import listed_actions
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.obligations import Monitor
from palaestra.core.session import Session
from palaestra.core.temporal_logic import Moment, parse

ACT, THINK = "act", "think"
WHICH = "Do you think or act next? Reply with that one word."
PROMPTS = {ACT: "Reply with the action alone.", THINK: "Say what you think, in a sentence."}


class SegmentsAgent(Agent):
    """Thinks and acts in an order that satisfies a formula of temporal logic."""

    name = "segments"

    def __init__(
        self,
        *,
        formula: str = "G(think -> X act)",
        thoughts: Annotated[int, Field(ge=1)] = 3,
    ) -> None:
        """Limit the thoughts in a row to `thoughts`, even if the formula allows more.

        Raises:
            InputError: the formula cannot be parsed, or nothing satisfies it.
        """
        self.parsed, self.thoughts = parse(formula), thoughts
        Monitor(self.parsed)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        monitor, seen, thoughts_in_a_row = Monitor(self.parsed), session.observation.text, 0
        messages, unread = [system(session.instructions)], seen
        while not session.over:
            kinds = monitor.allowed(
                seen, (ACT, THINK) if thoughts_in_a_row < self.thoughts else (ACT,), None
            )
            if not kinds:
                return
            kind = kinds[0]
            if len(kinds) > 1:
                messages.append(user(f"{unread}\n{WHICH}".lstrip()))
                chosen = (await _reply(session, messages, kinds)).text
                kind = chosen if chosen in kinds else kinds[0]  # without constrained decoding
                messages.append(assistant(kind))
                unread = ""
            monitor.advance(Moment(seen, kind))
            messages.append(user(f"{unread}\n{PROMPTS[kind]}".lstrip()))
            listed = await listed_actions(session) if kind == ACT else []
            reply = await _reply(session, messages, listed)
            messages.append(reply.message)
            thoughts_in_a_row, unread = thoughts_in_a_row + 1, ""
            if kind == ACT:
                transition = await session.act(reply.text.strip(), by=reply)
                thoughts_in_a_row, seen = 0, transition.observation.text
                unread = seen

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].text.endswith(WHICH):
            return ACT
        if messages[-1].text.endswith(PROMPTS[THINK]):
            return f"{actions[0].text} is the next step."
        return self.phrase(actions[0])


async def _reply(
    session: Session, messages: Sequence[Message], choices: Sequence[str]
) -> Generation:
    """Return a reply: one of `choices`, if there are any and the model can be constrained."""
    if choices and session.can_choose():
        constrained = replace(session.sampling, choices=tuple(choices), stop=())
        return await session.generate(messages, sampling=constrained)
    return await session.generate(messages)
