"""Tool calls in the replies of models with our renderers: what is parsed, typed and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.model import Prompt, Renderer, Reply, Sampling
from palaestra.core.tool import Tool, fits
from palaestra.models.renderers.scanner import PYTHON
from palaestra.models.renderers.template_format import short_id


def read_reply(renderer: Renderer, prompt: Prompt, text: str) -> Reply:
    """Parse a reply to a prompt; calls are text if the prompt allows none.

    Calls without an id get one derived from the prompt's seed, so that a result can name the call
    that it answers. Text arguments are converted to the type in the tool's schema if they are JSON
    of that type.
    """
    reply = renderer.parse(text, calls_allowed(prompt), prompt.tokens)
    calls = [typed(call, prompt.tools) for call in reply.tool_calls]
    return reply._replace(tool_calls=identified(calls, prompt.seed))


def calls_allowed(prompt: Prompt) -> bool:
    """Return whether a reply to a prompt may call tools."""
    return bool(prompt.tools) and prompt.sampling.tool_choice != "none"


def check_tool_options(model: str, sampling: Sampling) -> None:
    """Raise InputError for options that models with our renderers would ignore."""
    for option, usual in _USUAL.items():
        value = getattr(sampling, option)
        if value not in usual:
            raise InputError(
                f"{option}={value!r} is not supported by the model '{model}'; omit it, or use "
                "a remote model."
            )


def identified(calls: Sequence[ToolCall], seed: int) -> tuple[ToolCall, ...]:
    """Return the calls; those without an id get one derived from the seed."""
    return tuple(
        ToolCall(call.name, call.arguments, call.id or short_id(f"call {number} of {seed}"))
        for number, call in enumerate(calls)
    )


def typed(call: ToolCall, tools: Sequence[Tool]) -> ToolCall:
    """Return the call with text arguments parsed as JSON if the schema takes that and no text."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        return call
    schemas = tool.parameters.get("properties", {})
    arguments = {
        key: _as_schema(value, schemas.get(key, {})) if isinstance(value, str) else value
        for key, value in call.arguments.items()
    }
    return ToolCall(call.name, arguments, call.id)


def _as_schema(text: str, schema: Mapping[str, Any]) -> Any:
    if fits(text, schema):
        return text
    try:
        value = _JSON.decode(PYTHON.get(text, text))
    except (ValueError, RecursionError):
        return text
    return value if fits(value, schema) else text


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_USUAL: dict[str, tuple[object, ...]] = {
    "tool_choice": ("auto", "none"),
    "parallel_tool_calls": (None, True),
    "reasoning_effort": (None,),
}
_JSON = json.JSONDecoder(parse_constant=_no_number)
