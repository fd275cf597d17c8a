"""A judge's verdict on a case, with its reason, its cost and the judge's calibration.

A verdict without a value is *no verdict*: the judge refused, or its reply was malformed. It
never counts as a zero, nor as a failure of the agent.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from palaestra.evaluation.judges.case import Case

PASS = 0.5  # a verdict of at least this value means "solved"


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that judging used."""

    calls: int = 0  # of models
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    actions: int = 0  # in environments
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
    """One judge's verdict on one episode."""

    judge: str
    identity: str  # digest of everything that decides the verdicts; see `Judge.identity`
    value: float | None  # 0 (not solved) to 1 (solved); None: no verdict
    reason: str
    cost: Cost = Cost()
    evidence: tuple[str, ...] = ()  # the observations of probes
    calibration: Mapping[str, Any] | None = None  # None: the judge was never calibrated

    @property
    def solved(self) -> bool | None:
        """Whether the judge regards the task as solved; None without a verdict."""
        return None if self.value is None else self.value >= PASS

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON document."""
        return asdict(self)


class Choice(StrEnum):
    FIRST = "first"  # the first of two cases is the better one
    SECOND = "second"  # the second is
    EQUAL = "equal"  # neither is
    NONE = "none"  # no verdict


@dataclass(frozen=True, slots=True)
class Preference:
    """A judge's choice between two cases."""

    choice: Choice
    cost: Cost = field(default=Cost())


class Judge(ABC):
    """The base of all judges: a subclass implements `judge` and describes itself in `rule`."""

    name: str

    @property
    @abstractmethod
    def rule(self) -> str:
        """Everything that decides the verdicts, as text: pattern, prompt, model, probes."""

    @property
    def identity(self) -> str:
        """A digest of `rule`: a calibration is valid for judges with the same identity only."""
        return hashlib.blake2b(self.rule.encode(), digest_size=6).hexdigest()

    @abstractmethod
    async def judge(self, case: Case) -> Verdict:
        """Judge one case; a failure while judging gives no verdict, with the reason."""

    async def judge_all(self, cases: Sequence[Case]) -> list[Verdict]:
        """Judge several cases, one after another unless a judge knows better."""
        return [await self.judge(case) for case in cases]

    async def prefer(self, a: Case, b: Case) -> Preference:
        """Choose the better of two cases: by default, the one with the higher verdict."""
        of_a, of_b = await self.judge(a), await self.judge(b)
        cost = of_a.cost + of_b.cost
        if of_a.value is None or of_b.value is None:
            return Preference(Choice.NONE, cost)
        if of_a.value == of_b.value:
            return Preference(Choice.EQUAL, cost)
        return Preference(Choice.FIRST if of_a.value > of_b.value else Choice.SECOND, cost)

    def verdict(self, value: float | None, reason: str, cost: Cost = Cost()) -> Verdict:
        """Make a verdict of this judge."""
        return Verdict(self.name, self.identity, value, reason, cost)
