"""How an episode ended: exactly one of success, failure, truncated(limit), error(kind, whose).

Only the agent's actions are scored. A fault of the environment or the infrastructure
is *no valid result*: `Outcome.scored` is false, and no reward exists.

Errors of an episode are data: `ended_by` turns each into an outcome that names its owner. Only a
mistake in the set-up or in the record stays an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from palaestra.core.errors import (
    AgentFault,
    ContextTooLong,
    EnvironmentFault,
    InfrastructureFault,
    PalaestraError,
    SessionOver,
)


class Status(StrEnum):
    """The kind of end of an episode."""

    SUCCESS = "success"  # the environment says the task is solved
    FAILURE = "failure"  # the episode ended unsolved, or the agent gave up
    TRUNCATED = "truncated"  # a limit cut the episode off
    ERROR = "error"  # something failed; `owner` is whose fault it was


class Limit(StrEnum):
    """The limit that truncated an episode."""

    TURNS = "turns"  # the budget's number of actions is used up
    TOKENS = "tokens"  # the budget's number of sampled tokens is used up
    SECONDS = "seconds"  # the budget's time is used up, in which this process ran
    TRIED = "tried"  # more actions were tried in trials than the budget allows
    CONTEXT = "context"  # the conversation no longer fits the model's context
    ENVIRONMENT = "environment"  # the environment's own step limit


class Owner(StrEnum):
    """Whose fault an error is."""

    AGENT = "agent"  # scored: as a failure
    ENVIRONMENT = "environment"  # not scored
    INFRASTRUCTURE = "infrastructure"  # not scored; may be retried alone


CANCELLED = "cancelled"  # the kind of an episode that was stopped without any fault


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
        """Return the outcome of an episode stopped because it was no longer needed: no result."""
        return cls.error(CANCELLED, Owner.INFRASTRUCTURE, detail)

    @property
    def was_cancelled(self) -> bool:
        return self.owner is Owner.INFRASTRUCTURE and self.kind == CANCELLED

    @property
    def retriable(self) -> bool:
        """Whether the episode may run again: the infrastructure failed."""
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


def ended_by(error: Exception, *, time_up: bool) -> Outcome:
    """Return the outcome of an episode in which the agent's `run` raised `error`.

    Args:
        error: the error.
        time_up: whether the episode's time limit was reached, which raises a TimeoutError.

    Raises:
        PalaestraError: `error` itself, where it is a mistake in the set-up or the record.
    """
    match error:
        case SessionOver():  # not raised by this session
            return Outcome.failure()
        case ContextTooLong():
            return Outcome.truncated(Limit.CONTEXT)
        case EnvironmentFault():
            return Outcome.error(error.kind, Owner.ENVIRONMENT, error.detail)
        case InfrastructureFault():
            return Outcome.error(error.kind, Owner.INFRASTRUCTURE, error.detail)
        case AgentFault():
            return Outcome.error(error.kind, Owner.AGENT, error.detail)
        case PalaestraError():
            raise error
        case TimeoutError() if time_up:
            return Outcome.truncated(Limit.SECONDS)
        case _:  # the agent's own program failed
            return Outcome.error("crash", Owner.AGENT, f"{type(error).__name__}: {error}")
