"""Tools, calls and results as text, for models whose chat template has no tools.

The convention is that of Hermes 2 Pro (Nous Research, 2024): the tools as JSON schemas in the
system message, a call as `<tool_call>{"name": …, "arguments": …}</tool_call>`, a result in
`<tool_response>` tags of the user's message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.message import (
    Message,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    text_message,
)
from palaestra.core.tool import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FORMAT = (
    "For each call of a tool, write its name and arguments as JSON between tags:\n"
    f'{OPEN}\n{{"name": <name>, "arguments": <object>}}\n{CLOSE}'
)


def as_words(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[Message]:
    """Return the messages with text in place of calls and results.

    Tools are appended to the first system message, or form one of their own. Each message becomes
    one message, independent of those after it: a conversation grows only at its end.
    """
    found = [_worded(message) for message in messages]
    if not tools:
        return found
    about = described(tools)
    if found and found[0].role == "system":
        first = text_message("system", f"{found[0].text}\n\n{about}", *found[0].images)
        return [first, *found[1:]]
    return [text_message("system", about), *found]


def described(tools: Sequence[Tool]) -> str:
    """Return the part of a system message that lists the tools and says how to call them."""
    lines = "\n".join(json.dumps(schema(tool), ensure_ascii=False) for tool in tools)
    return f"# Tools\n\n<tools>\n{lines}\n</tools>\n\n{FORMAT}"


def schema(tool: Tool) -> Mapping[str, Any]:
    """Return the tool as chat templates take it: a JSON schema of type `function`."""
    about = {"name": tool.name, "description": tool.description}
    return {"type": "function", "function": {**about, "parameters": dict(tool.parameters)}}


def written(call: ToolCall) -> str:
    """Return a call as a model writes it."""
    inner = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{OPEN}\n{json.dumps(inner, ensure_ascii=False)}\n{CLOSE}"


def response(content: str) -> str:
    """Return a tool's result as a message shows it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """Return the text of a reply with its calls below it."""
    return "\n".join([*([text] if text else []), *map(written, calls)])


def _worded(message: Message) -> Message:
    if all(isinstance(part, Text) for part in message.parts):
        return message
    if message.role == "assistant":
        words = with_calls(message.text, message.tool_calls)
        return assistant(words, reasoning=message.reasoning)
    if not message.tool_results:
        return message
    parts = [
        response(part.text) if isinstance(part, ToolResult) else part.text
        for part in message.parts
        if isinstance(part, Text | ToolResult)
    ]
    return text_message("user", "\n".join(parts), *message.images)
