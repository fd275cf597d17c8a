"""Tools as functions of Python: what code calls, and the action that it is."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, checked
from palaestra.safety.interpreter import Asked

ACT = "act"
ACT_TOLD = "act(action: str): do an action, said in words"


class Calls:
    """The functions that code can call: one for each tool, and `act`."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {function_name(tool.name): tool for tool in tools}

    @property
    def names(self) -> list[str]:
        return [*self._tools, ACT]

    @property
    def told(self) -> str:
        """A line for each."""
        lines = [
            name + tool.signature.removeprefix(tool.name) for name, tool in self._tools.items()
        ]
        return "\n".join([*lines, *([] if ACT in self._tools else [ACT_TOLD])])

    def action(self, asked: Asked) -> Action | str:
        """The action that a call is, or why it is none."""
        tool = self._tools.get(asked.name)
        if tool is None:
            return _said(asked) if asked.name == ACT else f"there is no function '{asked.name}'"
        order = list(tool.parameters.get("properties", {}))
        if len(asked.args) > len(order):
            return f"{tool.name} takes at most {len(order)} arguments: {tool.signature}"
        arguments = {**dict(zip(order, asked.args, strict=False)), **asked.kwargs}
        try:
            call = checked(ToolCall(tool.name, arguments), list(self._tools.values()))
        except NotACall as why:
            return str(why)
        return Action(str(call), call)

    @staticmethod
    def written(action: Action) -> str:
        """The code that does an action."""
        if action.call is None:
            return f"{ACT}({action.text!r})"
        said = str(action.call)
        return function_name(action.call.name) + said.removeprefix(action.call.name)


def function_name(tool: str) -> str:
    """A tool's name as Python allows it."""
    name = re.sub(r"\W", "_", tool)
    name = f"_{name}" if not name or name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name


def _said(asked: Asked) -> Action | str:
    given = [*asked.args, *asked.kwargs.values()]
    if len(given) != 1 or not isinstance(given[0], str):
        return f"{ACT} takes one text: the action"
    return Action(given[0])
