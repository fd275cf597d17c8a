"""What a verifiers rollout says to who plays in it: it is the agent's turn, or how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.environment import Observation, Transition
from palaestra.core.tool import Tool

OVER = "The task is over."


@dataclass(frozen=True, slots=True)
class Asked:
    """It is the agent's turn."""

    messages: list[dict[str, Any]]  # the whole conversation
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The rollout is over, and scored."""

    episode: Any  # of verifiers


def conversation(messages: list[dict[str, Any]], seen: list[dict[str, Any]]) -> str:
    """The words of the messages behind those seen before and the agent's reply to them.

    All of them, where they begin another conversation.
    """
    known = len(seen)
    goes_on = [*map(_said_by, messages[:known])] == [*map(_said_by, seen)]
    own = bool(known)  # the agent's reply comes next
    new = messages[known + own :] if goes_on and len(messages) > known + own else messages
    return "\n".join(filter(None, map(_words, new)))


def scored(event: Ended) -> Transition:
    """The end of a rollout, as verifiers scored it.

    Raises:
        RuntimeError: something failed in it, so that it has no score.
    """
    episode = event.episode
    failed = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if failed or not episode.ok:
        said = f"{failed[0].type}: {failed[0].message}" if failed else "the rollout is not ok"
        raise RuntimeError(said)
    if len(episode.traces) != 1:
        raise RuntimeError(f"its agent played {len(episode.traces)} times; once is understood here")
    [trace] = episode.traces
    solved = trace.reward >= 1
    cut = trace.is_truncated and not solved
    rewards = {name: one.value for name, one in trace.rewards.items() if one is not None}
    info: Mapping[str, Any] = {"rewards": rewards, "metrics": dict(trace.metrics)}
    return Transition(
        Observation(OVER),
        reward=float(trace.reward),
        terminated=not cut,
        truncated=cut,
        success=solved,
        info=info,
    )


def _said_by(message: Mapping[str, Any]) -> tuple[Any, Any]:
    return message["role"], message.get("content")


def _words(message: Mapping[str, Any]) -> str:
    """The words of a message; what is no text is named."""
    content: str | Sequence[Mapping[str, Any]] = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
