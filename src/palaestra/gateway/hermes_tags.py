"""Tool calls as text between a program and a model whose chat template does not support tools.

The text is that of `models/renderers/tool_text.py`. Here it is read back: from the system message
that lists the tools, and from replies, whole or as they are streamed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from palaestra.core.message import Message, Reasoning, ToolCall, assistant, text_message
from palaestra.core.strict_json import first
from palaestra.core.tool import UNPARSED, Tool
from palaestra.models.renderers.tool_text import CLOSE, OPEN, described, response, with_calls


def instructions(tools: Sequence[Tool], choice: str = "auto") -> str:
    """Return the part of a system message that lists the tools and the format of a call.

    Args:
        tools: at least one.
        choice: `auto`, `required` (a call in each reply), or the name of the tool to call.
    """
    demand = {"auto": "", "none": "", "required": "\nCall a tool in each reply."}
    return described(tools) + demand.get(choice, f"\nCall {choice} in each reply.")


def offered(system: str) -> list[Tool]:
    """Parse the tools that a system message lists; empty if it lists none."""
    _, tag, part = system.rpartition("<tools>\n")
    found = []
    for line in part.partition("\n</tools>")[0].splitlines() if tag else ():
        try:
            about = json.loads(line)["function"]
            found.append(Tool(about["name"], about["description"], about["parameters"]))
        except (ValueError, KeyError, TypeError):
            return []  # another convention
    return found


def as_text(message: Message) -> Message | None:
    """Return a message in this convention; None if nothing of it is left."""
    if message.role == "tool":
        return text_message("tool", response(message.text), *message.images)
    if message.role != "assistant":
        return message
    if message.parts and all(isinstance(part, Reasoning) for part in message.parts):
        return None
    return assistant(with_calls(message.text, [*map(_named_arguments, message.tool_calls)]))


def parsed(text: str) -> tuple[str, list[ToolCall]]:
    """Return the text of a reply and its calls; a call that is not valid JSON stays in the text.

    The last call's closing tag may be missing, cut off by a stop string or the token limit.
    """
    outside, calls, rest = "", [], text
    while OPEN in rest:
        before, _, after = rest.partition(OPEN)
        call, left = _first_call(after)
        outside += before
        if call is None:
            outside += OPEN
            rest = after
        else:
            calls.append(call)
            rest = left
    return (outside + rest).rstrip() if calls else text, calls


def without_partial_tag(text: str, *tags: str) -> str:
    """Return `text` without a partial tag at its end."""
    for start in range(max(0, len(text) - max(map(len, tags), default=0) + 1), len(text)):
        if any(tag.startswith(text[start:]) for tag in tags):
            return text[:start]
    return text


class TextOutsideCalls:
    """The text of a streamed reply, as far as it is certain to be outside of calls."""

    def __init__(self) -> None:
        """Begin with an empty reply."""
        self._held = ""  # possibly part of a call; inside a call, all of it
        self._blanks = ""  # trailing blanks, dropped if a call follows
        self._calling = False
        self._searched = 0  # characters already searched for the end of the call

    def more(self, text: str) -> str:
        """Append characters; return the text that has become certain."""
        self._held += text
        found = ""
        while self._calling or OPEN in self._held:
            if self._calling and not self._call():
                break
            before, tag, after = self._held.partition(OPEN)
            if not tag:
                break
            found, self._held = found + before, after
            self._calling, self._searched = True, 0
        if not self._calling:
            sure = without_partial_tag(self._held, OPEN)
            found, self._held = found + sure, self._held[len(sure) :]
        found = self._blanks + found
        certain = found.rstrip()
        self._blanks = found[len(certain) :]
        return certain

    def _call(self) -> bool:
        """Return whether the call has ended, which only its closing tag shows."""
        while (place := self._held.find(CLOSE, self._searched)) >= 0:
            self._searched = place + len(CLOSE)
            call, left = _first_call(self._held)
            if call is not None:
                self._held, self._calling = left, False
                return True
        self._searched = max(self._searched, len(self._held) - len(CLOSE) + 1)
        return False


def _first_call(text: str) -> tuple[ToolCall | None, str]:
    """Return the call at the beginning of `text`, if there is one, and the rest of the text."""
    start = len(text) - len(text.lstrip())
    try:
        found, end = first(text, start)
        name, arguments = found["name"], found.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, text
    rest = text[end:].lstrip()
    if rest and not rest.startswith(CLOSE):
        return None, text
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None, text
    return ToolCall(name, arguments), rest.removeprefix(CLOSE)


def _named_arguments(call: ToolCall) -> ToolCall:
    """Return the call with a name for an unnamed argument; see `UNPARSED`."""
    named = {
        "arguments" if name == UNPARSED else name: value for name, value in call.arguments.items()
    }
    return ToolCall(call.name, named)
