"""The tools of a responses request: functions, functions in namespaces, and custom tools.

The model sees all of them as functions: one in a namespace is called `NAMESPACE.NAME`, and a
`custom` tool, which takes a text, has the argument `input`. Tools that a provider hosts, such as
web search, are left out, since the gateway cannot execute them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool, arguments_text
from palaestra.gateway import openai_chat
from palaestra.gateway.request_fields import Shape

TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class FlatTool(Shape):
    """A function."""

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CustomTool(Shape):
    """A tool whose argument is a text; its description states the expected grammar."""

    type: Literal["custom"]
    name: str = Field(min_length=1)
    description: str | None = None


class Namespace(Shape):
    """Tools under one name."""

    type: Literal["namespace"]
    name: str = Field(min_length=1)
    description: str | None = None
    tools: list[FlatTool | CustomTool | openai_chat.OtherTool] | None = None


AnyTool = FlatTool | CustomTool | Namespace | openai_chat.OtherTool


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the model sees it, and as the program names it."""

    tool: Tool
    name: str
    namespace: str | None
    custom: bool

    def item(self, call: ToolCall) -> dict[str, Any]:
        """Return a call of it in the program's format."""
        about: dict[str, Any] = {"call_id": call.id, "name": self.name}
        if self.namespace is not None:
            about["namespace"] = self.namespace
        if not self.custom:
            arguments = {"arguments": arguments_text(call)}
            return {"type": "function_call", "id": f"fc_{call.id}", **about, **arguments}
        text = call.arguments.get("input")
        given = text if isinstance(text, str) else arguments_text(call)
        return {"type": "custom_tool_call", "id": f"ctc_{call.id}", **about, "input": given}


def offered(tools: Sequence[AnyTool]) -> dict[str, Offered]:
    """Return the callable tools by the names that the model uses."""
    return {one.tool.name: one for one in _offered(tools)}


def left_out(tools: Sequence[AnyTool]) -> tuple[str, ...]:
    """Return the tools that cannot be called, as `ignored` names them."""
    inner = [one for tool in tools if isinstance(tool, Namespace) for one in tool.tools or ()]
    return openai_chat.left_out([*tools, *inner])


def full_name(namespace: str | None, name: str) -> str:
    """Return the model's name of a tool."""
    return name if namespace is None else f"{namespace}.{name}"


def unknown(call: ToolCall) -> Offered:
    """Return a placeholder for a tool that was not offered but called by the model."""
    return Offered(Tool(call.name, "", {}), call.name, None, False)


def _offered(tools: Sequence[Any], namespace: str | None = None) -> Iterator[Offered]:
    for tool in tools:
        if isinstance(tool, Namespace):
            yield from _offered(tool.tools or (), tool.name)
        elif isinstance(tool, FlatTool | CustomTool):
            custom = isinstance(tool, CustomTool)
            parameters = TEXT if custom else getattr(tool, "parameters", None)
            name = full_name(namespace, tool.name)
            shown = Tool(name, tool.description or "", parameters or openai_chat.NO_PARAMETERS)
            yield Offered(shown, tool.name, namespace, custom)
