"""A library function as a tool: its name, its docstring, and a schema of its arguments.

All of it is parsed from the source, which is untrusted and is not executed. A plain annotation
(`int`, `list[str]`, `int | None`, `Literal["a", "b"]`, …) becomes a JSON type; any other one, or
none, admits every value.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from palaestra.core.tool import Tool
from palaestra.sandbox.function_library import Function, definition

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
    """Return the function as a tool; a caller cannot pass `*args` and `**kwargs`."""
    found = definition(function.source, function.name)
    assert found is not None  # its test has called it by name
    taken = found.args
    positional = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(positional) - len(taken.defaults)) + list(taken.defaults)
    pairs = [*zip(positional, defaults, strict=True)]
    pairs += zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    properties: dict[str, Schema] = {}
    for argument, default in pairs:
        properties[argument.arg] = {**_schema(argument.annotation), **_default(default)}
    description = ast.get_docstring(found) or "It says nothing of itself."
    return Tool(
        function.name,
        f"{description}\n(version {function.version}, tested)",
        {
            "type": "object",
            "properties": properties,
            "required": [argument.arg for argument, default in pairs if default is None],
        },
    )


def positional_only(function: Function) -> list[str]:
    """Return the names of the positional-only arguments."""
    found = definition(function.source, function.name)
    return [argument.arg for argument in found.args.posonlyargs] if found is not None else []


def _schema(node: ast.expr | None) -> Schema:
    match node:
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
    """Return the schema of a generic type from its name and its arguments in brackets."""
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


def _default(node: ast.expr | None) -> Schema:
    """Return the default value, if it is a literal that JSON can represent."""
    if node is None:
        return {}
    try:
        value = ast.literal_eval(node)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        return {}
    return {"default": value}
