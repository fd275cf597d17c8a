"""A judge reads a case and gives a verdict, with its reason, its cost and how far to trust it.

A verdict without a value is *no verdict*: the judge refused, or said something that is none.
It is never counted as a zero, and never as a failure of the agent.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from palaestra.evaluation.judges.case import Case

PASS = 0.5  # verdicts of this value and above say "solved"


@dataclass(frozen=True, slots=True)
class Cost:
    """What judging took."""

    calls: int = 0  # of models
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    actions: int = 0  # in worlds
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.sampled_tokens + other.sampled_tokens,
            self.actions + other.actions,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one judge says of one episode."""

    judge: str
    identity: str  # of all that decides the judge's verdicts; see `Judge.identity`
    value: float | None  # 0 (not solved) to 1 (solved); None: no verdict
    reason: str
    cost: Cost = Cost()
    evidence: tuple[str, ...] = ()  # what probes of the world showed
    calibration: Mapping[str, Any] | None = None  # None: its agreement was never measured

    @property
    def solved(self) -> bool | None:
        """Whether the judge takes the task as solved; None where there is no verdict."""
        return None if self.value is None else self.value >= PASS

    def as_json(self) -> dict[str, Any]:
        """The verdict as a document holds it."""
        return asdict(self)


class Choice(StrEnum):
    FIRST = "first"  # the first of two cases is the better one
    SECOND = "second"  # the second is
    EQUAL = "equal"  # neither is
    NONE = "none"  # no verdict


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of two cases a judge takes as the better one."""

    choice: Choice
    cost: Cost = field(default=Cost())


class Judge(ABC):
    """Subclass it and write `judge`; `rule` is all that decides what it says."""

    name: str

    @property
    @abstractmethod
    def rule(self) -> str:
        """All that decides the verdicts, in words: pattern, prompt, model, probes."""

    @property
    def identity(self) -> str:
        """A digest of `rule`: a calibration holds for judges of the same identity only."""
        return hashlib.blake2b(self.rule.encode(), digest_size=6).hexdigest()

    @abstractmethod
    async def judge(self, case: Case) -> Verdict:
        """The verdict on one case; what goes wrong on the way is no verdict, with the reason."""

    async def prefer(self, a: Case, b: Case) -> Preference:
        """The better of two cases: by default, the one with the higher verdict."""
        of_a, of_b = await self.judge(a), await self.judge(b)
        cost = of_a.cost + of_b.cost
        if of_a.value is None or of_b.value is None:
            return Preference(Choice.NONE, cost)
        if of_a.value == of_b.value:
            return Preference(Choice.EQUAL, cost)
        return Preference(Choice.FIRST if of_a.value > of_b.value else Choice.SECOND, cost)

    def verdict(self, value: float | None, reason: str, cost: Cost = Cost()) -> Verdict:
        """A verdict of this judge."""
        return Verdict(self.name, self.identity, value, reason, cost)
