"""Voting: sample several replies to the same prompt, and take the most frequent action.

Source: Wang et al. 2022 (self-consistency). It needs neither a branching environment nor a judge:
the majority is right where a model is right more often than it makes any single error. The cost is
`samples` replies per action; the prompt is processed once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.react import FORMAT, action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.session import Session


class VoteAgent(Agent):
    """Takes the most frequent action of `samples` replies, with thoughts if asked for."""

    name = "vote"

    def __init__(
        self,
        *,
        samples: Annotated[int, Field(ge=1)] = 5,
        temperature: Annotated[float, Field(ge=0.0)] = 1.0,
        thoughts: bool = False,
        history: Keep = None,
    ) -> None:
        self.samples, self.temperature = samples, temperature
        self.thoughts, self.history = thoughts, history

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        instructions = (
            f"{session.instructions}\n{FORMAT}" if self.thoughts else session.instructions
        )
        history = History(instructions, session.observation.text, self.history)
        sampling = replace(session.sampling, temperature=self.temperature)
        while not session.over:
            replies = await session.generate(history.messages, sampling=sampling, n=self.samples)
            actions = [action_of(reply.text) for reply in replies]
            # of equals the first; the conversation continues from the first reply with it
            action, _ = Counter(actions).most_common(1)[0]
            chosen = replies[actions.index(action)]
            transition = await session.act(action, by=chosen)
            history.add(chosen.message, transition.observation.text)

    def phrase(self, action: Action) -> str:
        if not self.thoughts:
            return action.text
        return f"Thought: {action.text} is the next step.\nAction: {action.text}"
