"""Tools as Python functions: the functions that code can call, and the actions they stand for."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.strict_json import parsed
from palaestra.core.tool import NotACall, Tool, checked
from palaestra.sandbox.interpreter import Asked

ACT = "act"
ACT_SIGNATURE = "act(action: str): do an action, said in words"


class Calls:
    """The functions that code can call: one per tool, and `act`."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {function_name(tool.name): tool for tool in tools}

    @property
    def names(self) -> list[str]:
        return [*self._tools, ACT]

    @property
    def signatures(self) -> str:
        """Return the signatures, one per line."""
        lines = [
            name + tool.signature.removeprefix(tool.name) for name, tool in self._tools.items()
        ]
        return "\n".join([*lines, *([] if ACT in self._tools else [ACT_SIGNATURE])])

    def action(self, asked: Asked) -> Action | str:
        """Return the action of a call, or why the call is invalid."""
        tool = self._tools.get(asked.name)
        if tool is None:
            return (
                _text_action(asked) if asked.name == ACT else f"there is no function '{asked.name}'"
            )
        order = list(tool.parameters.get("properties", {}))
        if len(asked.args) > len(order):
            return f"{tool.name} takes at most {len(order)} arguments: {tool.signature}"
        arguments = {**dict(zip(order, asked.args, strict=False)), **asked.kwargs}
        try:
            call = checked(ToolCall(tool.name, arguments), list(self._tools.values()))
        except NotACall as why:
            return str(why)
        return Action(str(call), call)

    def value(self, asked: Asked, answer: str) -> tuple[Any, str]:
        """Return what a call evaluates to, and what the answer says beside it.

        That is the text itself, or of a tool that answers with JSON the value in the first line.
        """
        tool = self._tools.get(asked.name)
        if tool is None or not tool.answers_json:
            return answer, ""
        first, _, rest = answer.partition("\n")
        try:
            return parsed(first), rest
        except ValueError:  # such as a refusal of the world, which is no answer of the tool
            return answer, ""

    @staticmethod
    def code_for(action: Action) -> str:
        """Return the code that takes an action."""
        if action.call is None:
            return f"{ACT}({action.text!r})"
        rendered = str(action.call)
        return function_name(action.call.name) + rendered.removeprefix(action.call.name)


def function_name(tool: str) -> str:
    """Return a tool's name as Python can call it: identifiers with full stops between them."""
    return ".".join(map(_identifier, tool.split(".")))


def _identifier(part: str) -> str:
    name = re.sub(r"\W", "_", part)
    name = f"_{name}" if not name or name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name


def _text_action(asked: Asked) -> Action | str:
    given = [*asked.args, *asked.kwargs.values()]
    if len(given) != 1 or not isinstance(given[0], str):
        return f"{ACT} takes one text: the action"
    return Action(given[0])
