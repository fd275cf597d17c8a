"""Segments: which kinds of segment an agent writes, and in what order, is stated by a formula.

Source: Crouse et al. 2023, where common agents are formulas over their segments. Here a moment is a
segment, `think` or `act`, and the world observes after each `act`:

    G act                                               acts at once, as `direct` does
    think and G(think -> X act) and G(act -> N think)   a thought before each action, as in ReAct
    think and N G act                                   thinks once, at the start
    G(think -> seen door)                               thinks where a door is seen

Where the formula leaves both kinds open the model chooses, held to them by its decoder if it can
be; actions are held to those that the world lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palaestra.agents.ltl import listed_actions
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.safety.obligations import Monitor
from palaestra.safety.temporal_logic import Moment, parse

ACT, THINK = "act", "think"
WHICH = "Do you think or act next? Reply with that one word."
PROMPTS = {ACT: "Reply with the action alone.", THINK: "Say what you think, in a sentence."}


class SegmentsAgent(Agent):
    """Thinks and acts in an order that a formula of temporal logic allows."""

    name = "segments"

    def __init__(
        self,
        *,
        formula: str = "G(think -> X act)",
        thoughts: Annotated[int, Field(ge=1)] = 3,
    ) -> None:
        """There are at most so many `thoughts` in a row, whatever the formula allows.

        Raises:
            InputError: the formula cannot be read, or nothing satisfies it.
        """
        self.parsed, self.thoughts = parse(formula), thoughts
        Monitor(self.parsed)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        rule, seen, thought = Monitor(self.parsed), session.observation.text, 0
        messages, news = [system(session.instructions)], seen
        while not session.over:
            kinds = rule.allowed(seen, (ACT, THINK) if thought < self.thoughts else (ACT,), None)
            if not kinds:
                return
            kind = kinds[0]
            if len(kinds) > 1:
                messages.append(user(f"{news}\n{WHICH}".lstrip()))
                said = (await _said(session, messages, kinds)).text
                kind = said if said in kinds else kinds[0]  # of a model that is not held to them
                messages.append(assistant(kind))
                news = ""
            rule.take(Moment(seen, kind))
            messages.append(user(f"{news}\n{PROMPTS[kind]}".lstrip()))
            listed = await listed_actions(session) if kind == ACT else []
            reply = await _said(session, messages, listed)
            messages.append(assistant(reply.text))
            thought, news = thought + 1, ""
            if kind == ACT:
                transition = await session.act(reply.text.strip(), by=reply)
                thought, seen = 0, transition.observation.text
                news = seen

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        if messages[-1].content.endswith(WHICH):
            return ACT
        if messages[-1].content.endswith(PROMPTS[THINK]):
            return f"{actions[0].text} is the next step."
        return self.phrase(actions[0])


async def _said(
    session: Session, messages: Sequence[Message], choices: Sequence[str]
) -> Generation:
    """The model's reply: one of the choices if there are any and it can be held to them."""
    if choices and session.can_choose():
        held = replace(session.sampling, choices=tuple(choices), stop=())
        return await session.generate(messages, sampling=held)
    return await session.generate(messages)
