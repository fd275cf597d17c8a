"""Advised sessions: in some turns an advisor acts in place of the policy.

In each turn the advisor is asked first, in the policy's conversation, so that its reply is recorded
as the policy would have had to make it. Then either it acts, or the policy is asked and acts. The
record says who: `Step.call` names the call that acted, and advice has the role "advisor".
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, Protocol

from palaestra.core.agent import Agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import ADVISOR, Key, derive_seed
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Generation, Listener, Model, Sampling
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.tool import Tool

Turn = Literal["advised", "agreed", "differed"]
"""Of a past turn: the advisor acted, or the policy did, as the advisor would have or otherwise."""


class Advice(Protocol):
    """A rule that says when the advisor acts."""

    def acts(self, past: Sequence[Turn], rng: random.Random) -> bool:
        """Return whether it acts now, after these turns."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Advice in a random share of the turns: the behaviour policy is a mixture (VARL, 2025)."""

    probability: float

    def acts(self, past: Sequence[Turn], rng: random.Random) -> bool:
        """See `Advice`."""
        return rng.random() < self.probability


@dataclass(frozen=True, slots=True)
class Takeover:
    """Intervention after several actions that differ (Luo et al. 2023, RLIF; DAgger with a gate).

    The last of these actions is carried out; then the advisor acts for some turns and hands back.
    """

    after: int  # actions of the policy in a row that differ from the advisor's
    turns: int | None  # of the advisor; None: to the end of the episode

    def acts(self, past: Sequence[Turn], rng: random.Random) -> bool:
        """See `Advice`."""
        acted = _latest(past, "advised")
        if acted:
            return self.turns is None or acted < self.turns
        return _latest(past, "differed") >= self.after


def _latest(past: Sequence[Turn], kind: Turn) -> int:
    """Return how many of the latest turns in a row were of a kind."""
    return sum(1 for _ in takewhile(lambda turn: turn == kind, reversed(past)))


class AdvisedSession(Session):
    """A session in which the model of the role "advisor" may act for the role "agent"."""

    def __init__(
        self,
        key: Key,
        task: Task,
        environment: AsyncEnvironment,
        agent: Agent,
        models: Mapping[str, Model],
        *,
        advice: Advice,
        **options: Any,
    ) -> None:
        """Prepare a session; `advice` says when the advisor acts, the rest is `Session`'s."""
        super().__init__(key, task, environment, agent, models, **options)
        self._advice = advice
        self._past: list[Turn] = []

    async def _replies(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        role: str,
        sampling: Sampling | None,
        listen: Listener | None,
        n: int | None,
    ) -> list[Generation]:
        """Return a reply of the policy, or the advisor's if it acts in this turn.

        Raises:
            InputError: several replies, or those of another role, are asked for.
        """
        if n is not None or role != "agent":
            raise InputError(
                "An advised session takes one reply of the role 'agent' per turn, as the agent "
                "'direct' does; use that agent."
            )
        # asked again rather than remembered: an interrupted episode has no record of "no advice"
        if not await self.environment.oracle():
            self._past.append("agreed")  # nothing to differ from
            return await super()._replies(messages, tools, role, sampling, listen, n)
        advice = await self.generate_within(
            "agent", messages, role=ADVISOR, tools=tools, sampling=sampling
        )
        rng = random.Random(derive_seed("advice", self.seed, len(self._past)))
        if self._advice.acts(self._past, rng):
            self._past.append("advised")
            return [advice]
        (reply,) = await super()._replies(messages, tools, role, sampling, listen, n)
        self._past.append("agreed" if _proposed(reply) == _proposed(advice) else "differed")
        return [reply]


def _proposed(reply: Generation) -> tuple[str, list[str]]:
    """Return the action that a reply proposes: its text, and its tool calls without their ids."""
    return reply.text.strip(), [str(call) for call in reply.tool_calls]
