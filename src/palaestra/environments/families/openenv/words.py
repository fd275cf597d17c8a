"""Parsing of replies into an OpenEnv server's action model, and rendering of its observations."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.tool import NotACall, Tool, checked, fits, parse_call, random_call
from palaestra.environments.families.openenv.description import ActionFormat

HIDDEN = ("metadata",)  # fields of every model that are for programs, not for agents
NUMBERS: dict[str, type] = {"integer": int, "number": float}
NOTHING = "(nothing)"  # an observation without text


@dataclass(frozen=True, slots=True)
class ActionParser:
    """The parser of replies for one server."""

    format: ActionFormat
    tools: tuple[Tool, ...]
    schema: Mapping[str, Any]  # of the one field that takes the text

    @property
    def free(self) -> bool:
        """Whether any text is an action."""
        kinds = self.schema.get("type")
        bounds = {"enum", "const", "pattern", "minLength", "maxLength", "format"} & set(self.schema)
        return bool(self.format.text) and kinds in (None, "string") and not bounds

    @property
    def how(self) -> str:
        """Instructions for the agent on how to reply."""
        if self.tools:
            listed = "\n".join(tool.signature for tool in self.tools)
            return f"Reply with one tool call and nothing else:\n{listed}"
        if words := self.choices:
            return f"Reply with one of these actions and nothing else: {', '.join(words)}."
        if (kind := self.schema.get("type")) in NUMBERS:
            return (
                f"Reply with {'an integer' if kind == 'integer' else 'a number'} and nothing else."
            )
        return "Your whole reply is the action."

    @property
    def choices(self) -> tuple[str, ...]:
        """All actions, if they can be listed."""
        if self.format.words:
            return tuple(self.format.words)
        return tuple(map(str, self.schema.get("enum", ()))) if self.format.text else ()

    def payload(self, action: Action) -> dict[str, Any]:
        """Parse an action into the fields of the server's action model.

        Raises:
            NotACall: the action cannot be parsed; the message is for the agent.
        """
        if self.tools:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
            arguments = _plain(dict(call.arguments))
            if self.format.mcp:
                return {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
            return {**self.format.fixed, **arguments}
        if action.call is not None:
            raise NotACall(f"There are no tools here. {self.how}")
        return {**self.format.fixed, **self._parse(action.text)}

    def sample(self, rng: random.Random, last: str) -> Action:
        """Sample a valid action; for free text, one of the samples or a word of `last`."""
        if self.tools:
            call = random_call(self.tools, rng)
            return Action(str(call), call)
        if self.choices:
            return Action(rng.choice(self.choices))
        if self.schema.get("type") in NUMBERS:
            low = int(self.schema.get("minimum", 0))
            return Action(str(rng.randint(low, int(self.schema.get("maximum", low + 9)))))
        return Action(rng.choice(self.format.samples or re.findall(r"\w+", last) or ["yes", "no"]))

    def _parse(self, text: str) -> dict[str, Any]:
        reply = text.strip()
        if not reply:
            raise NotACall(f"Say your action. {self.how}")
        if self.format.words:
            if reply not in self.format.words:
                raise NotACall(f"That is no action here. {self.how}")
            return self.format.words[reply]
        value: Any = next((one for one in self.schema.get("enum", ()) if str(one) == reply), reply)
        convert = NUMBERS.get(str(self.schema.get("type")))
        try:
            value = convert(value) if convert else value
        except (ValueError, OverflowError):
            raise NotACall(f"That is no number. {self.how}") from None
        value = _plain(value)
        if not fits(value, self.schema):
            raise NotACall(f"That is no action here. {self.how}")
        return {self.format.text: value}


def action_parser(
    format: ActionFormat, schema: Mapping[str, Any], listed: tuple[Tool, ...]
) -> ActionParser:
    """Make the parser for a server with this action schema; `listed` are its tools with `mcp`.

    Raises:
        InputError: the description does not fit the server.
    """
    fields = {
        name: _whole(part, schema.get("$defs", {}))
        for name, part in schema.get("properties", {}).items()
        if name not in HIDDEN
    }
    named = {*format.fixed, *(key for part in format.words.values() for key in part)}
    for name in (*([format.text] if format.text else []), *sorted(named)):
        if name not in fields:
            raise InputError(
                f"The action model of this OpenEnv server has no field '{name}'; "
                f"it has: {', '.join(fields) or 'none'}. Correct the description's 'action'."
            )
    if format.mcp:
        return ActionParser(format, listed, {})
    if not format.tool:
        return ActionParser(format, (), fields[format.text] if format.text else {})
    free = {name: part for name, part in fields.items() if name not in format.fixed}
    required = [name for name in schema.get("required", ()) if name in free]
    parameters = {"type": "object", "properties": free, "required": required}
    summary = str(schema.get("description") or "Act.").strip().partition("\n")[0]
    return ActionParser(format, (Tool(format.tool, summary, parameters),), {})


def parse_tools(observation: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Parse the tools in a server's `ListToolsObservation`.

    Raises:
        InputError: it lists none.
    """
    found = observation.get("tools")
    try:
        tools = tuple(
            Tool(
                one["name"],
                str(one.get("description") or one["name"]).strip(),
                _whole(one["input_schema"], one["input_schema"].get("$defs", {})),
            )
            for one in found or ()
        )
    except (AttributeError, KeyError, TypeError):
        tools = ()
    if not tools:
        raise InputError(
            "This OpenEnv server lists no tools; "
            "use text, words or tool in the description's 'action' instead of mcp."
        )
    return tools


def render(template: str, observation: Mapping[str, Any]) -> str:
    """Render an observation by the template, or without one, all fields that are not empty.

    Raises:
        LookupError: the template names a field that the observation does not have.
    """
    if template:
        return template.format(**observation).strip() or NOTHING
    if "tool_name" in observation and "result" in observation:
        return _result(observation)
    shown = {
        name: value
        for name, value in observation.items()
        if name not in HIDDEN and value not in (None, "", [], {})
    }
    if len(shown) == 1:
        return _words(*shown.values()).strip() or NOTHING
    lines = [f"{name}: {_words(value)}" for name, value in shown.items()]
    return "\n".join(lines).strip() or NOTHING


def tool_refused(observation: Mapping[str, Any]) -> bool:
    """Return whether a server reports an unknown tool or invalid arguments."""
    error = observation.get("error")
    kind = error.get("error_type") if isinstance(error, dict) else None
    return kind in ("tool_not_found", "invalid_args")


def _result(observation: Mapping[str, Any]) -> str:
    """Render the result of a tool call in a `CallToolObservation`."""
    error, result = observation.get("error"), observation["result"]
    if error:
        return str(error.get("message", error) if isinstance(error, dict) else error) or NOTHING
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        texts = [
            str(part["text"])
            for part in result["content"]
            if isinstance(part, dict) and part.get("type") == "text" and "text" in part
        ]
        if texts:
            return "\n".join(texts).strip() or NOTHING
        result = result.get("structured_content", result)
    return _words(result).strip() or NOTHING


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return the value as plain JSON; raise NotACall if that is not possible."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise NotACall("Use plain values and characters, as in JSON.") from None
    return json.loads(text)


def _whole(schema: Any, parts: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a schema with its `$ref`s filled in; recursive references stay open."""
    if isinstance(schema, list):
        return [_whole(part, parts, depth) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name:
        return _whole(parts.get(name, {}), parts, depth + 1) if depth < 8 else {}
    return {key: _whole(part, parts, depth) for key, part in schema.items() if key != "$defs"}
