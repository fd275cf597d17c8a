"""Calls of tools as text: palaestra's messages are text only, a program's have tools and calls.

The convention is that of the Hermes models, which Qwen and others are trained on: the tools as JSON
in the system message, a call as `<tool_call>{"name": …, "arguments": …}</tool_call>` in a reply.
Source: NousResearch's Hermes function calling format, 2024.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.rollout.gateway.strict import first

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def told(tools: Sequence[Tool], choice: str = "auto") -> str:
    """The part of a system message that says which tools there are, and how one is called.

    Args:
        tools: at least one.
        choice: `auto`, `required` (a call in each reply), or the name of the tool to call.
    """
    lines = "\n".join(_dumped(_described(tool)) for tool in tools)
    call = f'{OPEN}\n{{"name": <name>, "arguments": <object>}}\n{CLOSE}'
    demand = {"auto": "", "none": "", "required": "\nCall a tool in each reply."}
    return (
        f"# Tools\n\nThese functions can be called:\n<tools>\n{lines}\n</tools>\n\n"
        f"To call one, write its name and arguments as JSON:\n{call}"
        + demand.get(choice, f"\nCall {choice} in each reply.")
    )


def heard(system: str) -> list[Tool]:
    """The tools that such a part of a system message tells of; empty where it has none."""
    _, tag, part = system.rpartition("<tools>\n")
    found = []
    for line in part.partition("\n</tools>")[0].splitlines() if tag else ():
        try:
            about = json.loads(line)["function"]
            found.append(Tool(about["name"], about["description"], about["parameters"]))
        except (ValueError, KeyError, TypeError):
            return []  # words of somebody else
    return found


def written(call: ToolCall) -> str:
    """The call as a model writes it."""
    inner = _dumped({"name": call.name, "arguments": dict(call.arguments)})
    return f"{OPEN}\n{inner}\n{CLOSE}"


def parsed(text: str) -> tuple[str, list[ToolCall]]:
    """The words of a reply and its calls; what is not whole and sound JSON stays among the words.

    The last call's closing tag may be missing: a stop string or the limit of tokens cut it.
    """
    words, calls, rest = "", [], text
    while OPEN in rest:
        before, _, after = rest.partition(OPEN)
        call, left = _first_call(after)
        words += before
        if call is None:
            words += OPEN
            rest = after
        else:
            calls.append(call)
            rest = left
    return (words + rest).rstrip() if calls else text, calls


def sure(text: str) -> str:
    """The words of a reply that begins with `text`, as far as `parsed` will find them for sure."""
    words, rest = "", text
    while OPEN in rest:
        before, _, after = rest.partition(OPEN)
        words += before
        call, left = _first_call(after)
        if call is None:
            return words.rstrip()
        rest = left
    return (words + before_beginning(rest, OPEN)).rstrip()


def before_beginning(text: str, *tags: str) -> str:
    """`text` up to where it ends with the beginning of a tag."""
    for start in range(max(0, len(text) - max(map(len, tags), default=0) + 1), len(text)):
        if any(tag.startswith(text[start:]) for tag in tags):
            return text[:start]
    return text


def response(content: str) -> str:
    """What a tool has answered, as the convention frames it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def _first_call(text: str) -> tuple[ToolCall | None, str]:
    """The call at the beginning of `text`, if there is one, and what follows it."""
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


def _described(tool: Tool) -> Mapping[str, Any]:
    about = {"name": tool.name, "description": tool.description}
    return {"type": "function", "function": {**about, "parameters": dict(tool.parameters)}}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
