"""Parsing replies that either call a tool or end the task with a final reply without a call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, checked, parse_call

LIKE_A_CALL = re.compile(r"\s*[A-Za-z_][\w.-]*\(.*\)\s*", re.DOTALL)  # and nothing else


def call_or_final_reply(action: Action, tools: Sequence[Tool]) -> ToolCall | None:
    """Return the call of an action; None for a final reply without a call.

    Raises:
        NotACall: it looks like a tool call but is not a valid one, or it is empty.
    """
    if action.call is not None:
        return checked(action.call, tools)
    call = parsed_call(action.text, tools)
    if call is None and not action.text.strip():
        raise NotACall("Call a tool, or say in words what came of the task.")
    return call


def parsed_call(text: str, tools: Sequence[Tool]) -> ToolCall | None:
    """Return the call in a text; None if there is none, so the text is the final reply.

    "I paid the bill (50 EUR)" is no call; `pay(50)` is one, even if no such tool exists.

    Raises:
        NotACall: it looks like a tool call but is not a valid one; the message says why.
    """
    if not _tries(text, tools):
        return None
    call = parse_call(text, tools)
    return ToolCall(call.name, json.loads(json.dumps(dict(call.arguments))))


def _tries(text: str, tools: Sequence[Tool]) -> bool:
    if "<tool_call>" in text or LIKE_A_CALL.fullmatch(text):
        return True
    if '"name"' in text and ('"arguments"' in text or '"parameters"' in text):
        return True
    names = "|".join(re.escape(tool.name) for tool in tools) or "(?!)"
    return re.search(rf"(?<![\w.])(?:{names})\s*\(", text) is not None
