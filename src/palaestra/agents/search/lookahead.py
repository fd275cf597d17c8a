"""Lookahead: a model is the world model; imagine each proposal, act once, plan again.

Nothing is tried in the environment. A model (role "world") predicts the observation after an
action as text, the imagined rollout continues for `depth` actions, a judge values its last state,
and the first action of the best rollout is taken. The next plan starts from the real observation.

Source: Deng et al. 2025 (SimuRA) for planning in an imagined world; Liu et al. 2023 (RAFA) for
"reason for future, act for now": a long plan, one action, and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaestra.agents.search.base import Count, Temperature
from palaestra.agents.search.scorers import asks_for_value, judged, transcript
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation, Sampling
from palaestra.core.session import Session

PREDICT = (
    "You predict what happens in a world. You are told what was seen and done, and at the end an "
    "action. Reply with what will be seen after it, and nothing else."
)
IMAGINED = "(imagined) "
ON, OFF = "It leads on.", "It leads astray."


class LookaheadAgent(Agent):
    """Samples `samples` proposals, and imagines each `depth` actions ahead."""

    name = "lookahead"
    roles = ("world", "judge")

    def __init__(
        self, *, samples: Count = 4, depth: Count = 1, temperature: Temperature = 1.0
    ) -> None:
        self.samples, self.depth, self.temperature = samples, depth, temperature

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            reply = await self._chosen(session, messages)
            done = await session.act(reply.text.strip(), by=reply)
            messages = [*messages, reply.message, user(done.observation.text)]

    async def _chosen(self, session: Session, messages: list[Message]) -> Generation:
        """Return the proposal with the best imagined rollout; of equals, the most frequent."""
        proposals = await session.generate(
            messages, sampling=self._sampling(session), n=self.samples
        )
        actions = [reply.text.strip() for reply in proposals]
        replies = dict(
            zip(reversed(actions), reversed(proposals), strict=True)
        )  # of equals the first
        if len(replies) == 1:
            return proposals[0]
        values = {
            action: await self._value(session, messages, replies[action].text)
            for action in dict.fromkeys(actions)
        }
        best = max(values, key=lambda action: (values[action], actions.count(action)))
        return replies[best]

    async def _value(self, session: Session, messages: list[Message], reply: str) -> float:
        for ahead in range(self.depth):
            if ahead:
                sampling = self._sampling(session)
                reply = (await session.generate(messages, sampling=sampling)).text
            asked = [system(PREDICT), user(f"{transcript(messages)}\n> {reply.strip()}")]
            seen = (await session.generate(asked, role="world")).text
            messages = [*messages, assistant(reply), user(IMAGINED + seen.strip())]
        return await judged(session, messages)

    def _sampling(self, session: Session) -> Sampling:
        return replace(session.sampling, temperature=self.temperature)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Predict only whether an action follows the plan, and value a state by that."""
        text = transcript(messages)
        ahead = text.count(IMAGINED)
        if asks_for_value(messages):
            return f"{100 * text.count(IMAGINED + ON) / max(ahead, 1):g}"
        right = self.phrase(actions[min(ahead, len(actions) - 1)])
        if messages[0].text == PREDICT:
            return ON if text.rpartition("\n> ")[2] == right.strip() else OFF
        return right
