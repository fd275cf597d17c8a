"""Voting: several replies to the same prompt, and the action that most of them end in.

Source: Wang et al. 2022 (self-consistency). It needs no world that branches and no judge: replies
that reason differently to the same action agree where a model is right more often than it errs in
any one way. Costs `samples` replies for each action; the prompt is read once.
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
    """`samples` replies, after a thought each where asked for; the most frequent action is done."""

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
        told = f"{session.instructions}\n{FORMAT}" if self.thoughts else session.instructions
        past = History(told, session.observation.text, self.history)
        sampling = replace(session.sampling, temperature=self.temperature)
        while not session.over:
            replies = await session.generate(past.messages, sampling=sampling, n=self.samples)
            actions = [action_of(reply.text) for reply in replies]
            # of equals the first; the conversation goes on from the first reply that says it
            action, _ = Counter(actions).most_common(1)[0]
            chosen = replies[actions.index(action)]
            transition = await session.act(action, by=chosen)
            past.add(chosen.text, transition.observation.text)

    def phrase(self, action: Action) -> str:
        if not self.thoughts:
            return action.text
        return f"Thought: {action.text} is the next step.\nAction: {action.text}"
