"""Forms: from the JSON schema of an API to fields, and from what was sent back to arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MANY = re.compile(r"[,\n]")  # what separates the values of a list
ON = "on"  # what a browser sends for a box that is ticked
NUMBERS = {"integer": int, "number": float}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form."""

    name: str
    label: str
    kind: Literal["line", "lines", "box", "choice", "hidden"]
    value: str = ""  # of a box: `ON` or nothing
    options: tuple[tuple[str, str], ...] = ()  # of a choice: what is sent, and what it is called
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Forms:
    """How the APIs of one app look as forms."""

    words: Mapping[str, str]  # the site's own words for "yes", "no" and "any"
    long: Collection[str]  # names of arguments whose texts have several lines

    def asking(self, parameters: Mapping[str, Any], values: Mapping[str, str]) -> list[Field]:
        """Return the fields of a form that asks for rows, and what they hold."""
        return [
            self._field(name, schema, values.get(name, ""), asks=True)
            for name, schema in parameters["properties"].items()
        ]

    def changing(self, parameters: Mapping[str, Any], values: Mapping[str, Any]) -> list[Field]:
        """Return the fields of a form that changes something.

        Args:
            parameters: the JSON schema of the arguments.
            values: what the fields hold at first, by argument; else its default.
        """
        required = parameters.get("required", ())
        return [
            self._field(name, schema, values.get(name, schema.get("default")), name in required)
            for name, schema in parameters["properties"].items()
        ]

    def _field(
        self,
        name: str,
        schema: Mapping[str, Any],
        value: Any,
        required: bool = False,
        asks: bool = False,
    ) -> Field:
        label, hint, kind = human(name), str(schema.get("description", "")), schema.get("type")
        words = self.words
        if kind == "boolean" and asks:
            options = (("", words["any"]), ("true", words["yes"]), ("false", words["no"]))
            return Field(name, label, "choice", text_of(value), options, hint)
        if kind == "boolean":
            return Field(name, label, "box", ON if value in (True, ON) else "", hint=hint)
        if "enum" in schema:
            known = tuple((str(one), str(one)) for one in schema["enum"] if one is not None)
            empty = () if required else (("", words["any"] if asks else "–"),)
            return Field(name, label, "choice", text_of(value), (*empty, *known), hint)
        several = kind == "array" or (name in self.long and not asks)
        return Field(name, label, "lines" if several else "line", text_of(value), hint=hint)


def asked(parameters: Mapping[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a form that asks for rows; what is left empty is left out."""
    return {
        name: _value(schema, sent[name])
        for name, schema in parameters["properties"].items()
        if sent.get(name)
    }


def changed(parameters: Mapping[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a form that changes something.

    A text that is left empty is empty, unless it has another default; another field that is left
    empty is left out. A text that is not the number that an argument wants stays a text, which the
    service refuses.
    """
    found: dict[str, Any] = {}
    for name, schema in parameters["properties"].items():
        kind, text = schema.get("type"), sent.get(name, "")
        plain = kind == "string" and "enum" not in schema and not schema.get("default")
        if kind in ("boolean", "array") or text or plain:
            found[name] = _value(schema, text)
    return found


def text_of(value: Any) -> str:
    """Return a value as a field holds it."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def field_text(value: Any) -> str:
    """Return what a form sends for a field that was left as it is."""
    return (ON if value else "") if isinstance(value, bool) else text_of(value)


def is_box(schema: Mapping[str, Any]) -> bool:
    """Return whether an argument is a box to tick, of which nothing is sent if it is not."""
    return schema.get("type") == "boolean"


def human(name: str) -> str:
    """Return the name of a field or an API as words: `starts_at` as "Starts at"."""
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _value(schema: Mapping[str, Any], text: str) -> Any:
    kind = schema.get("type")
    if kind == "boolean":
        return text in (ON, "true")
    if kind == "array":
        return [part.strip() for part in MANY.split(text) if part.strip()]
    if kind in NUMBERS:
        try:
            return NUMBERS[kind](text)
        except ValueError:
            return text
    return text.replace("\r\n", "\n")
