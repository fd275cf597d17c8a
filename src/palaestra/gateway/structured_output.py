"""Structured output: replies as JSON that fits a schema, if the program gives one.

A model with constrained decoding is limited to a grammar. Any other model is asked for the form in
its system message and may not follow it; then the field is reported to the program as unsupported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from palaestra.core.tool import Tool
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.request_fields import Shape
from palaestra.models.renderers.tool_text import CLOSE, OPEN

LONGEST = 100_000  # characters of a schema
SPACES = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})?"}
"""Whitespace between the parts of JSON: any usual amount, but bounded."""


class Schema(Shape):
    """A schema and its name, as in chat completions."""

    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Format(Shape):
    """The form of a reply; responses and messages put the schema here."""

    type: str
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None
    json_schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The requested form of a reply."""

    field: str  # of the request that sets it
    schema: Mapping[str, Any]

    @property
    def instructions(self) -> str:
        """Return the part of a system message that requests it."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Reply with one JSON value and nothing else. It must fit this schema:\n{schema}"

    def grammar(self, tools: Sequence[Tool]) -> str:
        """Return the grammar of a reply: such JSON or, if tools are offered, calls of them."""
        words = f"words: {_json(self.schema)}"
        if not tools:
            return f"start: words\n{words}"
        call = {
            "type": "object",
            "properties": {
                "name": {"enum": [tool.name for tool in tools]},
                "arguments": {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        framed = f'"{OPEN}\\n" called "\\n{CLOSE}"'
        calls = f'calls: call ("\\n" call)*\ncall: {framed}\ncalled: {_json(call)}'
        return f"start: words | calls\n{words}\n{calls}"


def form_of(asked: Format | None, field: str) -> Form | None:
    """Return the form that a field requests; None: any text.

    Raises:
        HTTPError: the form is unknown, or its schema is too long.
    """
    if asked is None or asked.type == "text":
        return None
    if asked.type not in ("json_object", "json_schema"):
        raise HTTPError(400, f"{field}: the form '{asked.type}' is not supported.", "invalid")
    given = asked.json_schema.schema_ if asked.json_schema is not None else asked.schema_
    if len(json.dumps(given)) > LONGEST:
        reason = f"{field}: the schema has more than {LONGEST:,} characters."
        raise HTTPError(400, reason, "invalid")
    return Form(field, {"type": "object"} if asked.type == "json_object" else given or {})


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': SPACES})}"
