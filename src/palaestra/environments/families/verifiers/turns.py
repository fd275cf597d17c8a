"""Events of a verifiers rollout: the agent's turn, or the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.environment import Observation, Transition
from palaestra.core.tool import Tool

OVER = "The task is over."


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent's turn."""

    messages: list[dict[str, Any]]  # the whole conversation
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a rollout, with its scores."""

    episode: Any  # of verifiers


def new_text(messages: list[dict[str, Any]], seen: list[dict[str, Any]]) -> str:
    """Return the text of the messages after those seen and the agent's reply to them.

    If the messages do not continue those seen, return the text of all.
    """
    known = len(seen)
    continues = [*map(_identity, messages[:known])] == [*map(_identity, seen)]
    own = bool(known)  # the agent's reply comes next
    new = messages[known + own :] if continues and len(messages) > known + own else messages
    return "\n".join(filter(None, map(_text, new)))


def final_transition(event: Ended) -> Transition:
    """Return the last transition of a rollout, with verifiers' scores.

    Raises:
        RuntimeError: the rollout failed and has no score.
    """
    episode = event.episode
    failed = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if failed or not episode.ok:
        reason = f"{failed[0].type}: {failed[0].message}" if failed else "the rollout is not ok"
        raise RuntimeError(reason)
    if len(episode.traces) != 1:
        raise RuntimeError(f"its agent played {len(episode.traces)} times; only once is supported")
    [trace] = episode.traces
    solved = trace.reward >= 1
    cut = trace.is_truncated and not solved
    rewards = {name: item.value for name, item in trace.rewards.items() if item is not None}
    info: Mapping[str, Any] = {"rewards": rewards, "metrics": dict(trace.metrics)}
    return Transition(
        Observation(OVER),
        reward=float(trace.reward),
        terminated=not cut,
        truncated=cut,
        success=solved,
        info=info,
    )


def _identity(message: Mapping[str, Any]) -> tuple[Any, Any]:
    return message["role"], message.get("content")


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message; parts that are not text appear by type."""
    content: str | Sequence[Mapping[str, Any]] = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
