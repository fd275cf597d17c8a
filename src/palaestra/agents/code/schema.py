"""A kept function as a tool: its name, what it says of itself, and a schema of its arguments.

All of it is read off the source, which nobody has read before: nothing of it is run. An annotation
that says no more than Python means (`int`, `list[str]`, `int | None`, `Literal["a", "b"]`, …)
becomes JSON's own type; any other one, or none, lets every value through.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from palaestra.agents.code.library import Function, definition
from palaestra.core.tool import Tool

TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "Sequence": "array",
    "dict": "object",
    "Mapping": "object",
    "None": "null",
}
Schema = dict[str, Any]


def tool_of(function: Function) -> Tool:
    """The function as a tool; `*more` and `**more` cannot be given by a caller."""
    found = definition(function.source, function.name)
    assert found is not None  # it was tested by name
    taken = found.args
    places = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(places) - len(taken.defaults)) + list(taken.defaults)
    pairs = [*zip(places, defaults, strict=True)]
    pairs += zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    properties: dict[str, Schema] = {}
    for argument, default in pairs:
        properties[argument.arg] = {**_schema(argument.annotation), **_default(default)}
    said = ast.get_docstring(found) or "It says nothing of itself."
    return Tool(
        function.name,
        f"{said}\n(version {function.version}, tested)",
        {
            "type": "object",
            "properties": properties,
            "required": [argument.arg for argument, default in pairs if default is None],
        },
    )


def only_by_place(function: Function) -> list[str]:
    """The arguments that have no name for a caller."""
    found = definition(function.source, function.name)
    return [argument.arg for argument in found.args.posonlyargs] if found is not None else []


def _schema(said: ast.expr | None) -> Schema:
    match said:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):  # an annotation in quotes
            try:
                return _schema(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError):
                return {}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {"type": TYPES[name]} if name in TYPES else {}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([left, right])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _of(name, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner])
        case _:
            return {}


def _of(name: str, inner: list[ast.expr]) -> Schema:
    """What stands in brackets behind a name."""
    if name == "Optional":
        return _either([*inner, ast.Constant(None)])
    if name == "Union":
        return _either(inner)
    if name == "Literal":
        known = [part.value for part in inner if isinstance(part, ast.Constant)]
        return {"enum": known} if len(known) == len(inner) else {}
    if name in ("list", "Sequence") and len(inner) == 1:
        return {"type": "array", "items": _schema(inner[0])}
    return {"type": TYPES[name]} if name in TYPES else {}


def _either(parts: list[ast.expr]) -> Schema:
    found = [_schema(part) for part in parts]
    return {"anyOf": found} if all(found) else {}


def _default(said: ast.expr | None) -> Schema:
    """A default that JSON can carry."""
    if said is None:
        return {}
    try:
        value = ast.literal_eval(said)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        return {}
    return {"default": value}
