"""Endings: what the exception that ended an agent's run says about its episode.

Errors of an episode are data: each becomes an outcome that says whose it was. Only a mistake in the
set-up or in the record is no outcome, and stays an exception.
"""

from __future__ import annotations

from palaestra.core.errors import (
    AgentFault,
    ContextTooLong,
    EnvironmentFault,
    InfrastructureFault,
    PalaestraError,
)
from palaestra.core.journal import SessionOver
from palaestra.core.outcome import Limit, Outcome, Owner


def ended_by(error: Exception, *, time_up: bool) -> Outcome:
    """How an episode ends whose agent's run ended in `error`.

    Args:
        error: what was raised.
        time_up: whether the episode's own time was over, of which a TimeoutError tells.

    Raises:
        PalaestraError: `error` itself, where it is a mistake in the set-up or the record.
    """
    match error:
        case SessionOver():  # one that this session did not raise
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
        case _:  # the agent's own program broke
            return Outcome.error("crash", Owner.AGENT, f"{type(error).__name__}: {error}")
