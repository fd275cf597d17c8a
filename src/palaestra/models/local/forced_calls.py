"""Forced tool calls: grammars of one call of an allowed tool, in the model's own notation.

The notation is read off the renderer, which writes a call of each tool: the JSON of its arguments
gives way to the tool's schema, everything else stays as it is written. Tokens that the vocabulary
adds to ordinary text, such as `<tool_call>`, stay these tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall, assistant
from palaestra.core.model import Renderer
from palaestra.core.tool import Tool

EXAMPLE = {"argument": "a value"}  # written by the renderer, then replaced
AS_TEMPLATES_WRITE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


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
            InputError: there is no such tool, or the notation has no JSON of the arguments.
        """
        allowed = [tool for tool in tools if choice in ("required", tool.name)]
        if not allowed:
            known = ", ".join(tool.name for tool in tools) or "none"
            raise InputError(
                f"tool_choice={choice!r} fits no tool of the prompt (tools: {known}); offer that "
                "tool, or use tool_choice='auto'."
            )
        rules = []
        for number, tool in enumerate(allowed):
            before, after = self._around_arguments(tool, id)
            rules.append(f"call_{number}: {before} arguments_{number} {after}")
            rules.append(f"arguments_{number}: %json {json.dumps(_schema(tool))}")
        start = " | ".join(f"call_{number}" for number in range(len(allowed)))
        return "\n".join([f"start: {start}", *rules])

    def _around_arguments(self, tool: Tool, id: str) -> tuple[str, str]:
        """Return what the renderer writes before and after the arguments of a call."""
        renderer, call = self._renderer, ToolCall(tool.name, EXAMPLE, id)
        tokens = renderer.reply(assistant("", tool_calls=[call]))
        while tokens and tokens[-1] in renderer.end_tokens:
            tokens = tokens[:-1]
        found = renderer.parse(renderer.text(tokens)).tool_calls
        pieces = list(self._pieces(tokens))
        place = next((n for n, (_, text) in enumerate(pieces) if _split(text) is not None), None)
        if place is None or [(c.name, c.arguments) for c in found] != [(tool.name, EXAMPLE)]:
            raise InputError(
                f"The model's notation '{renderer.name}' cannot be held to a call of "
                f"'{tool.name}', because its arguments are no JSON in it; use tool_choice='auto'."
            )
        parts = _split(pieces[place][1])
        assert parts is not None
        before = [*(written for written, _ in pieces[:place]), _literal(parts[0])]
        after = [_literal(parts[1]), *(written for written, _ in pieces[place + 1 :])]
        return " ".join(before), " ".join(after)

    def _pieces(self, tokens: Sequence[int]) -> Iterator[tuple[str, str]]:
        """Yield stretches of tokens as the grammar writes them, and their text if ordinary."""
        for added, stretch in groupby(tokens, self._added.__contains__):
            if added:
                yield " ".join(f"<[{token}]>" for token in stretch), ""
            else:
                text = self._renderer.text(list(stretch))
                yield _literal(text), text


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


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _schema(tool: Tool) -> dict[str, object]:
    return {"additionalProperties": False, **tool.parameters, "x-guidance": AS_TEMPLATES_WRITE}
