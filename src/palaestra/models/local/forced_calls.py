"""Forced tool calls: grammars of one call of an allowed tool, in the model's own notation.

The notation is read off the renderer, which writes a call of each tool: the JSON of its arguments
gives way to the tool's schema, everything else stays as it is written. Where arguments are between
tags instead, see `tagged_calls`. Tokens that the vocabulary adds to ordinary text, such as
`<tool_call>`, stay these tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.model import Renderer
from palaestra.core.tool import Tool
from palaestra.models.local.tagged_calls import (
    EXAMPLE,
    TaggedCall,
    Unwritable,
    items_of,
    json_rule,
    written,
)


class CallGrammars:
    """A writer of such grammars for one renderer."""

    def __init__(self, renderer: Renderer, vocabulary: str) -> None:
        """Read the added tokens of a `tokenizer.json`."""
        self._renderer = renderer
        self._added = {token["id"] for token in json.loads(vocabulary)["added_tokens"]}

    def of(self, tools: Sequence[Tool], choice: str, id: str) -> str:
        """Return the grammar of one call.

        Args:
            tools: those that the prompt offers.
            choice: "required", or the name of the tool to call.
            id: of the call, for notations that contain one.

        Raises:
            InputError: there is no such tool, or the notation has neither JSON nor tags, or
                a tool's schema is not supported in tags.
        """
        allowed = [tool for tool in tools if choice in ("required", tool.name)]
        if not allowed:
            known = ", ".join(tool.name for tool in tools) or "none"
            raise InputError(
                f"tool_choice={choice!r} fits no tool of the prompt (tools: {known}); offer that "
                "tool, or use tool_choice='auto'."
            )
        rules: list[str] = []
        for number, tool in enumerate(allowed):
            try:
                rules += self._rules(f"call_{number}", tool, id)
            except Unwritable as why:
                raise InputError(
                    f"The model's notation '{self._renderer.name}' cannot be held to a call of "
                    f"'{tool.name}', because {why}; use tool_choice='auto'."
                ) from why
        start = " | ".join(f"call_{number}" for number in range(len(allowed)))
        return "\n".join([f"start: {start}", *rules])

    def _rules(self, name: str, tool: Tool, id: str) -> Iterator[str]:
        """Yield the rules of a call of a tool; raise Unwritable if there are none."""
        renderer, call = self._renderer, ToolCall(tool.name, EXAMPLE, id)
        items = items_of(renderer, call, self._added)
        text = "".join(one if isinstance(one, str) else renderer.text([one]) for one in items)
        found = [(one.name, one.arguments) for one in renderer.parse(text).tool_calls]
        if found != [(tool.name, EXAMPLE)]:
            raise Unwritable("its own calls are not read back")
        for place, one in enumerate(items):
            parts = _split(one) if isinstance(one, str) else None
            if parts is not None:
                before, after = [*items[:place], parts[0]], [parts[1], *items[place + 1 :]]
                yield f"{name}: {written(before)} {name}_arguments {written(after)}"
                schema = {"additionalProperties": False, **tool.parameters}
                yield json_rule(f"{name}_arguments", schema)
                return
        yield from TaggedCall(renderer, tool, id, self._added).rules(name)


def _split(text: str) -> tuple[str, str] | None:
    """Return the text before and after the JSON of the example; None if there is none."""
    place = text.find("{")
    while place >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            value, end = None, place
        if value == EXAMPLE:
            return text[:place], text[end:]
        place = text.find("{", place + 1)
    return None
