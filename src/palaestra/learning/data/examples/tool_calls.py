"""Tool calls of recorded replies: native ones, and those that the environment read in a text."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.learning.data.examples.replies import Reply, replies


def calls_of(reply: Reply, tools: Sequence[Tool]) -> list[tuple[ToolCall, Step]]:
    """Return the valid tool calls of a reply, each with its step."""
    found = [(called(step, tools), step) for step in reply.steps]
    return [(call, step) for call, step in found if call is not None]


def called(step: Step, tools: Sequence[Tool]) -> ToolCall | None:
    """Return the call that a step made; None if it was none, or was invalid."""
    if not step.transition.valid:
        return None
    if step.action.call is not None:
        return step.action.call
    try:
        return parse_call(step.action.text, tools)
    except NotACall:
        return None


def check_called(episodes: Sequence[Episode], policy: str, tools: Sequence[Tool]) -> None:
    """Raise InputError if there are episodes, and the policy called no tool in any of them."""
    if episodes and not any(calls_of(r, tools) for e in episodes for r in replies(e, policy)):
        raise InputError(
            f"No tool was called in any of {len(episodes)} episodes, so nothing can be learned of "
            "calls; choose an environment with tools, or record a speaker that calls them."
        )
