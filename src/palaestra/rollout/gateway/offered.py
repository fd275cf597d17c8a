"""The tools of a responses request: functions, those of namespaces, and free texts as arguments.

To the model all of them are functions: one of a namespace is called `NAMESPACE.NAME`, and a tool
that takes a text (`custom`) has the argument `input`. Tools that a provider hosts, such as a search
of the web, are left out, for nobody would answer their calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from palaestra.core.tool import Tool
from palaestra.rollout.gateway import chat
from palaestra.rollout.gateway.conversation import Called
from palaestra.rollout.gateway.fields import Shape

TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class FlatTool(Shape):
    """A function."""

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CustomTool(Shape):
    """A tool whose argument is a text; what its grammar asks for is said in its description."""

    type: Literal["custom"]
    name: str = Field(min_length=1)
    description: str | None = None


class Namespace(Shape):
    """Tools under one name."""

    type: Literal["namespace"]
    name: str = Field(min_length=1)
    description: str | None = None
    tools: list[FlatTool | CustomTool | chat.OtherTool] | None = None


AnyTool = FlatTool | CustomTool | Namespace | chat.OtherTool


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as it is told to the model, and as the program knows it."""

    tool: Tool
    name: str
    namespace: str | None
    custom: bool

    def item(self, call: Called) -> dict[str, Any]:
        """Its call, as the program is told it."""
        about: dict[str, Any] = {"call_id": call.id, "name": self.name}
        if self.namespace is not None:
            about["namespace"] = self.namespace
        if not self.custom:
            return {"type": "function_call", "id": f"fc_{call.id}", **about, **_json(call)}
        given = {} if isinstance(call.arguments, str) else call.arguments
        text = given.get("input")
        said = text if isinstance(text, str) else call.as_json
        return {"type": "custom_tool_call", "id": f"ctc_{call.id}", **about, "input": said}


def offered(tools: Sequence[AnyTool]) -> dict[str, Offered]:
    """The tools that can be called, by the names that the model calls them by."""
    return {one.tool.name: one for one in _offered(tools)}


def left_out(tools: Sequence[AnyTool]) -> tuple[str, ...]:
    """Those that cannot, as `ignored` names them."""
    inner = [one for tool in tools if isinstance(tool, Namespace) for one in tool.tools or ()]
    return chat.left_out([*tools, *inner])


def full_name(namespace: str | None, name: str) -> str:
    """What the model calls a tool."""
    return name if namespace is None else f"{namespace}.{name}"


def unknown(call: Called) -> Offered:
    """A call of a tool that was never offered: models make some up."""
    return Offered(Tool(call.name, "", {}), call.name, None, False)


def _offered(tools: Sequence[Any], namespace: str | None = None) -> Iterator[Offered]:
    for tool in tools:
        if isinstance(tool, Namespace):
            yield from _offered(tool.tools or (), tool.name)
        elif isinstance(tool, FlatTool | CustomTool):
            custom = isinstance(tool, CustomTool)
            parameters = TEXT if custom else getattr(tool, "parameters", None)
            name = full_name(namespace, tool.name)
            told = Tool(name, tool.description or "", parameters or chat.NO_PARAMETERS)
            yield Offered(told, tool.name, namespace, custom)


def _json(call: Called) -> dict[str, Any]:
    return {"arguments": call.as_json}
