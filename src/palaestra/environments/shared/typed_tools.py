"""Tools from functions: schemas from annotations and docstrings, arguments in their types.

The first argument of such a function is what it belongs to, and no part of the tool.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool


def described_tool(name: str, function: Callable[..., Any]) -> Tool:
    """Return a function as a tool; the first line of its docstring describes it.

    Raises:
        InputError: it has no docstring, or an argument has no type.
    """
    text = inspect.getdoc(function) or ""
    described = text.partition("\n")[0].strip()
    if not described:
        raise InputError(
            f"The tool '{name}' has no docstring, whose first line agents read; write one."
        )
    schema = _model(function).model_json_schema()
    properties = {
        argument: {key: value for key, value in part.items() if key != "title"}
        for argument, part in schema.get("properties", {}).items()
    }
    section = text.partition("Args:\n")[2].partition("\n\n")[0]
    for argument, words in re.findall(r"^\s+(\w+): (.+)$", section, re.M):
        if argument in properties:
            properties[argument]["description"] = words
    parameters = {"type": "object", "properties": properties}
    for key in ("required", "$defs"):
        if key in schema:
            parameters[key] = schema[key]
    return Tool(name, described, parameters)


@cache
def _model(function: Callable[..., Any]) -> Any:
    """Return the function's arguments as a pydantic model.

    Raises:
        InputError: an argument has no annotation, or is `*args` or `**kwargs`.
    """
    hints = get_type_hints(function)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InputError(
                f"The tool '{function.__name__}' takes '{name}', which has no type of its own, so "
                "there is no schema for it; annotate it."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(function.__name__, __config__=ConfigDict(strict=True), **fields)


def arguments_for(function: Callable[..., Any], call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments in the function's types; the function fills in its defaults.

    Raises:
        NotACall: an argument does not fit.
    """
    try:
        model = _model(function).model_validate_json(json.dumps(dict(call.arguments)))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise NotACall(f"{call.name}: '{location}': {first['msg']}") from None
    return {name: getattr(model, name) for name in call.arguments}
