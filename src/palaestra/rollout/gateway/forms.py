"""Replies in a form that a program asks for: JSON, of a schema where it gives one.

A model that can be held to a grammar is. Any other one is told so in its system message, and may
say something else; then the field that asks for the form is named to the program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from palaestra.core.tool import Tool
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.fields import Shape
from palaestra.rollout.gateway.refusal import Refusal

LONGEST = 100_000  # characters of a schema
SPACES = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})?"}
"""Blanks between the parts of JSON: any that a model writes, but not without an end."""


class Schema(Shape):
    """A schema and its name, as chat completions have them."""

    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Format(Shape):
    """The form of a reply; responses and messages have the schema here."""

    type: str
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None
    json_schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a reply is asked for in."""

    field: str  # of the request that asks for it
    schema: Mapping[str, Any]

    @property
    def told(self) -> str:
        """The part of a system message that asks for it."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Reply with one JSON value and nothing else. It must fit this schema:\n{schema}"

    def grammar(self, tools: Sequence[Tool]) -> str:
        """What a reply may be: such JSON or, where tools were told, calls of them."""
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
        framed = f'"{hermes.OPEN}\\n" called "\\n{hermes.CLOSE}"'
        calls = f'calls: call ("\\n" call)*\ncall: {framed}\ncalled: {_json(call)}'
        return f"start: words | calls\n{words}\n{calls}"


def form_of(asked: Format | None, field: str) -> Form | None:
    """The form that a field asks for; None: words as they come.

    Raises:
        Refusal: it is no form that there is, or its schema is too long.
    """
    if asked is None or asked.type == "text":
        return None
    if asked.type not in ("json_object", "json_schema"):
        raise Refusal(400, f"{field}: there is no form '{asked.type}' here.", "invalid")
    given = asked.json_schema.schema_ if asked.json_schema is not None else asked.schema_
    if len(json.dumps(given)) > LONGEST:
        reason = f"{field}: the schema has more than {LONGEST:,} characters."
        raise Refusal(400, reason, "invalid")
    return Form(field, {"type": "object"} if asked.type == "json_object" else given or {})


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': SPACES})}"
