"""Forced tool calls in notations with tags, where each argument stands between two of them.

The notation is read off the renderer, which writes calls with no argument, with one and with two:
what lies around their names and values is the notation's own. A text is written as it is and ends
where its closing tag begins, so it may hold anything but that tag. Other values are JSON, or what
the renderer writes where there are only some of them (`enum`, booleans, null).

Arguments come in the order of the schema; optional ones may be left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from palaestra.core.message import ToolCall, assistant
from palaestra.core.model import Renderer
from palaestra.core.tool import Tool
from palaestra.models.renderers.tool_conventions import typed

Items = list[str | int]
"""What a renderer writes: ordinary texts, and the ids of added tokens between them."""

Write = Callable[[Mapping[str, Any]], Items]
"""Writes a call with given arguments."""

EXAMPLE = {"first_key": "first value", "second_key": "second value"}
NUMBER = 12345
LABELS = {"title", "description", "default", "examples", "deprecated"}  # of any schema
OBJECT = LABELS | {"type", "properties", "required", "additionalProperties"}
CHOICES = ("anyOf", "oneOf")
AS_TEMPLATES_WRITE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


class Unwritable(Exception):
    """A call to which a reply cannot be held; says why."""


def items_of(renderer: Renderer, call: ToolCall, added: Collection[int]) -> Items:
    """Return what the renderer writes for a reply with one call, without its end."""
    tokens = renderer.reply(assistant("", tool_calls=[call]))
    while tokens and tokens[-1] in renderer.end_tokens:
        tokens = tokens[:-1]
    found: Items = []
    for special, stretch in groupby(tokens, added.__contains__):
        own = list(stretch)
        found += own if special else [renderer.text(own)]
    return found


def written(items: Items) -> str:
    """Return these items as a grammar writes them."""
    parts = [f"<[{one}]>" if isinstance(one, int) else literal(one) for one in items]
    return " ".join(part for part in parts if part)


def literal(text: str) -> str:
    """Return a text as a grammar writes it; nothing if it is empty."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def json_rule(name: str, schema: Mapping[str, Any]) -> str:
    """Return the rule of a value of a schema, in JSON as templates write it."""
    return f"{name}: %json {json.dumps({**schema, 'x-guidance': AS_TEMPLATES_WRITE})}"


@dataclass(frozen=True, slots=True)
class Tags:
    """What a notation writes around the names and values of arguments."""

    empty: Items  # a call without arguments
    opens: Items  # before the first name
    between: Items  # a name and its value
    closes: str  # directly after a value
    tag: str  # the closing tag, which no text may hold
    follows: Items  # from there to the next name
    ends: Items  # from there to the end

    @classmethod
    def of(cls, write: Write, text: Callable[[int], str]) -> Tags:
        """Read them off a writer; `text` returns the text of an added token.

        Raises:
            Unwritable: it writes no tags, or not each argument alike.
        """
        (key, value), (next_key, next_value) = EXAMPLE.items()
        opens, rest = _cut(write(EXAMPLE), key)
        between, rest = _cut(rest, value)
        follows, rest = _cut(rest, next_key)
        again, ends = _cut(rest, next_value)
        after, found = str(ends[0]), re.search(r"</[^<>]+>", str(ends[0]))
        if found is not None:
            closes, tag = after[: found.end()], found.group()
        elif len(ends) > 1 and isinstance(ends[1], int):
            closes, tag = after, text(ends[1])
        else:
            raise Unwritable("its arguments are neither JSON nor between tags")
        for single, text_of in ((value, value), (NUMBER, str(NUMBER))):
            head, one = _cut(write({key: single}), key)
            if (head, _cut(one, text_of), again) != (opens, (between, ends), between):
                raise Unwritable("its arguments are not written alike")
        if not str(follows[0]).startswith(closes):
            raise Unwritable("its arguments are not written alike")
        size = len(closes)
        return cls(
            write({}),
            opens,
            between,
            closes,
            tag,
            [str(follows[0])[size:], *follows[1:]],
            [after[size:], *ends[1:]],
        )


class TaggedCall:
    """A writer of the rules of one tool's call."""

    def __init__(self, renderer: Renderer, tool: Tool, id: str, added: Collection[int]) -> None:
        """Read the notation off the renderer.

        Args:
            renderer: of the model.
            tool: to be called.
            id: of the call.
            added: tokens that the vocabulary adds to ordinary text.

        Raises:
            Unwritable: it is no notation with tags.
        """
        self._renderer, self._tool, self._id, self._added = renderer, tool, id, added
        self._tags = Tags.of(self._write, lambda token: renderer.text([token]))

    def rules(self, name: str) -> Iterator[str]:
        """Yield the rules of a call, the last of which has that name.

        Raises:
            Unwritable: the tool's schema has parts that are not supported, or a value would be read
                back as another one.
        """
        tags, schema = self._tags, self._tool.parameters
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        if unknown := schema.keys() - OBJECT:
            raise Unwritable(f"its schema has '{min(unknown)}'")
        if missing := required - properties.keys():
            raise Unwritable(f"it requires '{min(missing)}', which its schema does not describe")
        starts = [] if required else [written(tags.empty)]
        for number, (key, of_key) in enumerate(properties.items()):
            argument = f"{literal(key)} {written(tags.between)} {name}_value{number}"
            then = f"{name}_rest{number + 1}"
            if required.isdisjoint(list(properties)[:number]):
                starts.append(f"{written(tags.opens)} {argument} {then}")
            if number:
                skipped = "" if key in required else f" | {then}"
                yield f"{name}_rest{number}: {written(tags.follows)} {argument} {then}{skipped}"
            yield from self._value(f"{name}_value{number}", key, of_key)
        if properties:
            yield f"{name}_rest{len(properties)}: {written(tags.ends)}"
        yield f"{name}: {' | '.join(starts)}"

    def _value(self, name: str, key: str, schema: Mapping[str, Any]) -> Iterator[str]:
        """Yield the rules of a value and what closes it, the last of which has that name."""
        alternatives: list[str] = []
        closes = literal(self._tags.closes)
        for number, option in enumerate(_options(schema)):
            fixed, text = _fixed(option), f"{name.upper()}_{number}"
            if fixed is not None:
                alternatives += [f"{literal(self._text(key, one))} {closes}" for one in fixed]
            elif _is_text(option):
                yield f"{text}: {self._any_text(key, option)}"
                alternatives = [text]  # whatever else it may be is read as a text as well
                break
            else:
                yield json_rule(f"{name}_json{number}", option)
                alternatives.append(f"{name}_json{number} {closes}")
        yield f"{name}: {' | '.join(alternatives)}"

    def _any_text(self, key: str, schema: Mapping[str, Any]) -> str:
        """Return the regular expression of a text and what closes it."""
        if unknown := schema.keys() - LABELS - {"type", "minLength", "maxLength"}:
            raise Unwritable(f"the text '{key}' has '{min(unknown)}'")
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        tags = self._tags
        later = ".+" if tags.closes.endswith(tags.tag) else ".*"
        whole = f"/(?s:.{{{least},{most}}}){_escaped(tags.closes)}/"
        return f"{whole} & ~/(?s:.*){_escaped(tags.tag)}(?s:{later})/"

    def _text(self, key: str, value: Any) -> str:
        """Return a value as the renderer writes it.

        Raises:
            Unwritable: it would be read back as another one.
        """
        tags, whole = self._tags, self._plain(self._write({key: value}))
        before = f"{self._plain(tags.opens)}{key}{self._plain(tags.between)}"
        after = f"{tags.closes}{self._plain(tags.ends)}"
        calls = self._renderer.parse(whole).tool_calls
        read = [typed(call, [self._tool]) for call in calls]
        if [(one.name, one.arguments) for one in read] != [(self._tool.name, {key: value})]:
            raise Unwritable(f"{value!r}, a value of '{key}', would be read as another one")
        return whole.removeprefix(before).removesuffix(after)

    def _write(self, arguments: Mapping[str, Any]) -> Items:
        call = ToolCall(self._tool.name, arguments, self._id)
        return items_of(self._renderer, call, self._added)

    def _plain(self, items: Items) -> str:
        texts = [one if isinstance(one, str) else self._renderer.text([one]) for one in items]
        return "".join(texts)


def _cut(items: Items, word: str) -> tuple[Items, Items]:
    """Cut at the first place of a word, which is in neither part."""
    for number, one in enumerate(items):
        if isinstance(one, str) and word in one:
            before, _, after = one.partition(word)
            return [*items[:number], before], [after, *items[number + 1 :]]
    raise Unwritable("its arguments are not written as they are")


def _options(schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the schemas of which a value fits one, each of at most one type."""
    for name in CHOICES:
        if name in schema:
            if unknown := schema.keys() - LABELS - {name}:
                raise Unwritable(f"its schema has '{name}' beside '{min(unknown)}'")
            return [one for option in schema[name] for one in _options(option)]
    if isinstance(schema.get("type"), list) and "enum" not in schema:
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


def _fixed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return all values of a schema, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    few: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
    return few.get(str(schema.get("type")))


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type", "string") == "string"


def _escaped(text: str) -> str:
    """Return a text as a regular expression between slashes."""
    return re.escape(text).replace("/", r"\/").replace("\\\n", r"\n").replace("\n", r"\n")
