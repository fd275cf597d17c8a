"""How an episode ended: exactly one of success, failure, truncated(limit), error(kind, whose).

Only what the agent did is ever scored. An environment's or the infrastructure's
fault is *no valid result*: `Outcome.scored` is false, and no reward exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    SUCCESS = "success"  # the environment says the task is solved
    FAILURE = "failure"  # the episode ended (or was given up) unsolved
    TRUNCATED = "truncated"  # a limit cut the episode off
    ERROR = "error"  # something broke; `owner` says whose fault it was


class Limit(StrEnum):
    TURNS = "turns"  # the budget's number of actions is used up
    TOKENS = "tokens"  # the budget's number of sampled tokens is used up
    SECONDS = "seconds"  # the budget's time is used up, in which this process ran
    TRIED = "tried"  # more actions were tried in trials than the budget allows
    CONTEXT = "context"  # the conversation no longer fits the model's context
    ENVIRONMENT = "environment"  # the environment's own step limit


class Owner(StrEnum):
    AGENT = "agent"  # scored: as a failure
    ENVIRONMENT = "environment"  # not scored
    INFRASTRUCTURE = "infrastructure"  # not scored; may be retried alone


CANCELLED = "cancelled"  # the kind of an end that is nobody's fault


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one episode."""

    status: Status
    limit: Limit | None = None
    kind: str | None = None
    owner: Owner | None = None
    detail: str = ""

    @classmethod
    def success(cls) -> Outcome:
        return cls(Status.SUCCESS)

    @classmethod
    def failure(cls) -> Outcome:
        return cls(Status.FAILURE)

    @classmethod
    def truncated(cls, limit: Limit) -> Outcome:
        return cls(Status.TRUNCATED, limit=limit)

    @classmethod
    def error(cls, kind: str, owner: Owner, detail: str = "") -> Outcome:
        return cls(Status.ERROR, kind=kind, owner=owner, detail=detail)

    @classmethod
    def cancelled(cls, detail: str) -> Outcome:
        """Stopped from outside because it was no longer needed: no fault, and no result."""
        return cls.error(CANCELLED, Owner.INFRASTRUCTURE, detail)

    @property
    def was_cancelled(self) -> bool:
        return self.owner is Owner.INFRASTRUCTURE and self.kind == CANCELLED

    @property
    def retriable(self) -> bool:
        """Whether the episode may be lived again: infrastructure broke it."""
        return self.owner is Owner.INFRASTRUCTURE and not self.was_cancelled

    @property
    def solved(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def scored(self) -> bool:
        """Whether this outcome says anything about the agent."""
        return self.status is not Status.ERROR or self.owner is Owner.AGENT

    def __str__(self) -> str:
        if self.status is Status.TRUNCATED:
            return f"truncated({self.limit})"
        if self.status is Status.ERROR:
            return f"error({self.kind}, {self.owner})"
        return str(self.status)
