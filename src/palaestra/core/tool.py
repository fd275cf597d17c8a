"""Tools: actions with named, typed arguments, and how their calls are parsed and checked.

A call in text is `name(argument="value", other=3)`, a JSON object
`{"name": …, "arguments": {…}}`, or that object within `<tool_call>` tags.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.core.strict_json import parsed

WORDS = ("a", "1", "none", "test")  # strings of random calls
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
MANY = 3  # an array in a random call has fewer entries

UNPARSED = ""
"""The argument name for call arguments that are not a JSON object; its value is their raw text."""


@dataclass(frozen=True, slots=True)
class Tool:
    """An action with named, typed arguments, with a description for models."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # a JSON schema of type "object"
    answers_json: bool = False  # whether the first line of its answers is JSON, a value for code

    def __hash__(self) -> int:
        """Hash all but the schema, which is not hashable."""
        return hash((self.name, self.description))

    @property
    def signature(self) -> str:
        """One line for a prompt: `name(argument: type, optional: type = …): description`."""
        required = self.parameters.get("required", ())
        parts = [
            f"{name}: {_type_name(schema)}" + ("" if name in required else " = …")
            for name, schema in self.parameters.get("properties", {}).items()
        ]
        return f"{self.name}({', '.join(parts)}): {self.description}"


ACT = Tool(
    "act",
    "Do one action in the world; answers with what is seen then.",
    {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "the action, in words"}},
        "required": ["action"],
    },
)
"""The tool that takes a text action, for models that only call tools in environments without."""


class NotACall(ValueError):
    """The reason why a text is not a valid tool call, as a message for its author."""


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text, as OpenAI's protocols carry them."""
    if list(call.arguments) == [UNPARSED]:
        return str(call.arguments[UNPARSED])
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def arguments_of(text: str) -> Mapping[str, Any]:
    """Parse the arguments of a call from JSON text; see `UNPARSED` for any other text."""
    try:
        found = parsed(text or "{}")
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {UNPARSED: text}


def parse_call(text: str, tools: Sequence[Tool]) -> ToolCall:
    """Parse the one tool call in a text.

    Raises:
        NotACall: there is none, the tool is unknown, or the arguments do not fit its schema.
    """
    call = _as_json(text) or _as_python(text, tools)
    if call is None:
        raise NotACall("Call one tool, such as: " + (tools[0].signature if tools else "none here"))
    if not _written_in_json(call):
        raise NotACall("The arguments must be plain values, as in JSON.")
    return checked(call, tools)


def written_call(text: str) -> ToolCall | None:
    """Return the tool call that a recorded action is, whatever the tools were; None if it is none.

    Arguments without a name get their number.
    """
    if (found := _as_json(text)) is not None:
        return found
    if re.match(r"\s*[A-Za-z_][\w.]*\s*\(", text) is None:
        return None
    try:
        call = _first_call(text.strip())
        given = {str(n): ast.literal_eval(value) for n, value in enumerate(call.args)}
        named = {w.arg: ast.literal_eval(w.value) for w in call.keywords if w.arg is not None}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return ToolCall(ast.unparse(call.func), given | named)


def checked(call: ToolCall, tools: Sequence[Tool]) -> ToolCall:
    """Return the call, if its tool exists and its arguments fit the schema.

    Raises:
        NotACall: the tool is unknown, or the arguments do not fit its schema.
    """
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools)
        raise NotACall(f"There is no tool '{call.name}'. Tools: {known}.")
    properties = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if name not in call.arguments:
            raise NotACall(f"{tool.name} needs the argument '{name}'. {tool.signature}")
    for name, value in call.arguments.items():
        if name not in properties:
            raise NotACall(f"{tool.name} has no argument '{name}'. {tool.signature}")
        if not fits(value, properties[name]):
            wanted = _type_name(properties[name])
            raise NotACall(f"{tool.name}: '{name}' must be {wanted}, not {json.dumps(value)}.")
    return call


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value has the schema's type and enum values, recursively."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return any(fits(value, option) for option in options)
    wanted = schema.get("type")
    if wanted is None:
        return True
    names = wanted if isinstance(wanted, list) else [wanted]
    if not any(_is_a(value, name) for name in names):
        return False
    if isinstance(value, (list, tuple)) and "items" in schema:
        return all(fits(item, schema["items"]) for item in value)
    if isinstance(value, dict) and "properties" in schema:
        inner = schema["properties"]
        present = all(name in value for name in schema.get("required", ()))
        return present and all(fits(v, inner[k]) for k, v in value.items() if k in inner)
    return True


def random_call(tools: Sequence[Tool], rng: random.Random) -> ToolCall:
    """Return a random call of one of the tools, with valid arguments and random optional ones."""
    tool = rng.choice(list(tools))
    required = tool.parameters.get("required", ())
    arguments = {
        name: _random_value(schema, rng)
        for name, schema in tool.parameters.get("properties", {}).items()
        if name in required or rng.random() < 0.5
    }
    return ToolCall(tool.name, arguments)


def _random_value(schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(list(schema["enum"]))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _random_value(rng.choice(list(options)), rng)
    wanted = schema.get("type", "string")
    match rng.choice(wanted) if isinstance(wanted, list) else wanted:
        case "integer":
            return rng.randint(int(schema.get("minimum", 0)), int(schema.get("maximum", 9)))
        case "number":
            return float(rng.randint(0, 9))
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = schema.get("items", {})
            return [_random_value(items, rng) for _ in range(rng.randrange(MANY))]
        case "object":
            inner = schema.get("properties", {})
            return {name: _random_value(part, rng) for name, part in inner.items()}
        case "null":
            return None
        case _:
            return rng.choice(WORDS)


def _written_in_json(call: ToolCall) -> bool:
    """Return whether JSON can represent the arguments: no sets, lone surrogates or infinity."""
    try:
        json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, TYPES.get(name, (object,)))


def _type_name(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(choice) for choice in schema["enum"])
    wanted = schema.get("type", "any")
    return " | ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _as_json(text: str) -> ToolCall | None:
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return None
    name, arguments = found.get("name"), found.get("arguments", found.get("parameters", {}))
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(name, arguments)


def _as_python(text: str, tools: Sequence[Tool]) -> ToolCall | None:
    """Parse `name(…)` with literal arguments, by name or in the order of the tool's schema."""
    names = sorted((re.escape(tool.name) for tool in tools), key=len, reverse=True)
    written = re.search(rf"(?<![\w.])(?:{'|'.join(names) or '(?!)'})\s*\(", text)
    if written is None:
        general = re.search(r"(?<![\w.])[A-Za-z_][\w.]*\s*\(", text)
        if general is None:
            return None
        return ToolCall(general.group().rstrip("( \t\n"), {})  # rejected later by its name
    try:
        call = _first_call(text[written.start() :])
        tool = next(tool for tool in tools if tool.name == ast.unparse(call.func))
        order = list(tool.parameters.get("properties", {}))
        if len(call.args) > len(order):
            return None
        arguments = dict(zip(order, map(ast.literal_eval, call.args), strict=False))
        for word in call.keywords:
            if word.arg is None:
                return None
            arguments[word.arg] = ast.literal_eval(word.value)
    except (ValueError, SyntaxError, StopIteration, RecursionError, MemoryError):
        return None
    return ToolCall(tool.name, arguments)


def _first_call(text: str) -> ast.Call:
    """Return the shortest prefix of the text, up to a closing bracket, that is a call."""
    for close in (match.end() for match in re.finditer(r"\)", text)):
        try:
            found = ast.parse(text[:close], mode="eval").body
        except SyntaxError:
            continue
        if isinstance(found, ast.Call):
            return found
    raise ValueError("no call")
