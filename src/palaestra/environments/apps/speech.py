"""Hearing agents that may call a tool or have the last word, which has no call in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, checked, parse_call

LIKE_A_CALL = re.compile(r"\s*[A-Za-z_][\w.-]*\(.*\)\s*", re.DOTALL)  # and nothing else


def call_or_last_word(action: Action, tools: Sequence[Tool]) -> ToolCall | None:
    """The call that an action makes; None where its words are the last ones.

    Raises:
        NotACall: it tries to call a tool, and cannot be followed, or it says nothing.
    """
    if action.call is not None:
        return checked(action.call, tools)
    call = heard(action.text, tools)
    if call is None and not action.text.strip():
        raise NotACall("Call a tool, or say in words what came of the task.")
    return call


def heard(text: str, tools: Sequence[Tool]) -> ToolCall | None:
    """The call that a text makes; None where it makes none, and so is the last word.

    "I paid the bill (50 EUR)" is words; `pay(50)` is a call, if of no tool that there is.

    Raises:
        NotACall: it tries to call a tool, and cannot be followed; says why.
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
