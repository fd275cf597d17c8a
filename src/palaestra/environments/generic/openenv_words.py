"""From an agent's words to an OpenEnv server's action model, and from its observations to words."""

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
from palaestra.environments.generic.openenv_description import Speech

OURS = ("metadata",)  # fields of every model, which are for programs
NUMBERS: dict[str, type] = {"integer": int, "number": float}
NOTHING = "(nothing)"  # an observation without words


@dataclass(frozen=True, slots=True)
class Tongue:
    """How to speak with one server."""

    speech: Speech
    tools: tuple[Tool, ...]
    schema: Mapping[str, Any]  # of the one field that takes the words

    @property
    def free(self) -> bool:
        """Whether any words are an action."""
        kinds = self.schema.get("type")
        bounds = {"enum", "const", "pattern", "minLength", "maxLength", "format"} & set(self.schema)
        return bool(self.speech.text) and kinds in (None, "string") and not bounds

    @property
    def how(self) -> str:
        """What an agent must know to be understood."""
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
        """All actions, where they can be listed."""
        if self.speech.words:
            return tuple(self.speech.words)
        return tuple(map(str, self.schema.get("enum", ()))) if self.speech.text else ()

    def payload(self, action: Action) -> dict[str, Any]:
        """The action's fields.

        Raises:
            NotACall: it is not understood; says why.
        """
        if self.tools:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
            arguments = _plain(dict(call.arguments))
            if self.speech.mcp:
                return {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
            return {**self.speech.fixed, **arguments}
        if action.call is not None:
            raise NotACall(f"There are no tools here. {self.how}")
        return {**self.speech.fixed, **self._heard(action.text)}

    def sample(self, dice: random.Random, last: str) -> Action:
        """An action that is understood; of any words, a sample, or else a word last seen."""
        if self.tools:
            call = random_call(self.tools, dice)
            return Action(str(call), call)
        if self.choices:
            return Action(dice.choice(self.choices))
        if self.schema.get("type") in NUMBERS:
            low = int(self.schema.get("minimum", 0))
            return Action(str(dice.randint(low, int(self.schema.get("maximum", low + 9)))))
        return Action(dice.choice(self.speech.samples or re.findall(r"\w+", last) or ["yes", "no"]))

    def _heard(self, text: str) -> dict[str, Any]:
        said = text.strip()
        if not said:
            raise NotACall(f"Say your action. {self.how}")
        if self.speech.words:
            if said not in self.speech.words:
                raise NotACall(f"That is no action here. {self.how}")
            return self.speech.words[said]
        value: Any = next((one for one in self.schema.get("enum", ()) if str(one) == said), said)
        convert = NUMBERS.get(str(self.schema.get("type")))
        try:
            value = convert(value) if convert else value
        except (ValueError, OverflowError):
            raise NotACall(f"That is no number. {self.how}") from None
        value = _plain(value)
        if not fits(value, self.schema):
            raise NotACall(f"That is no action here. {self.how}")
        return {self.speech.text: value}


def tongue(speech: Speech, schema: Mapping[str, Any], listed: tuple[Tool, ...]) -> Tongue:
    """How to speak with a server with that schema of actions and, with `mcp`, those tools.

    Raises:
        InputError: the description does not fit the server.
    """
    fields = {
        name: _whole(part, schema.get("$defs", {}))
        for name, part in schema.get("properties", {}).items()
        if name not in OURS
    }
    named = {*speech.fixed, *(key for part in speech.words.values() for key in part)}
    for name in (*([speech.text] if speech.text else []), *sorted(named)):
        if name not in fields:
            raise InputError(
                f"The action model of this OpenEnv server has no field '{name}'; "
                f"it has: {', '.join(fields) or 'none'}. Mend the description's 'action'."
            )
    if speech.mcp:
        return Tongue(speech, listed, {})
    if not speech.tool:
        return Tongue(speech, (), fields[speech.text] if speech.text else {})
    free = {name: part for name, part in fields.items() if name not in speech.fixed}
    required = [name for name in schema.get("required", ()) if name in free]
    parameters = {"type": "object", "properties": free, "required": required}
    words = str(schema.get("description") or "Act.").strip().partition("\n")[0]
    return Tongue(speech, (Tool(speech.tool, words, parameters),), {})


def tools_in(observation: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools that a server lists, as its `ListToolsObservation` has them.

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
            "This OpenEnv server lists no tools; mend the description's 'action', which says mcp."
        )
    return tools


def told(template: str, observation: Mapping[str, Any]) -> str:
    """An observation in words: by the template, or else each field that has something.

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
        if name not in OURS and value not in (None, "", [], {})
    }
    if len(shown) == 1:
        return _words(*shown.values()).strip() or NOTHING
    lines = [f"{name}: {_words(value)}" for name, value in shown.items()]
    return "\n".join(lines).strip() or NOTHING


def tool_refused(observation: Mapping[str, Any]) -> bool:
    """Whether a server says that there is no such tool, or that it takes other arguments."""
    error = observation.get("error")
    kind = error.get("error_type") if isinstance(error, dict) else None
    return kind in ("tool_not_found", "invalid_args")


def _result(observation: Mapping[str, Any]) -> str:
    """What came of a tool call, as a `CallToolObservation` has it."""
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
    """The value as JSON has it; raises NotACall where that is not possible."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise NotACall("Use plain values and characters, as in JSON.") from None
    return json.loads(text)


def _whole(schema: Any, parts: Mapping[str, Any], depth: int = 0) -> Any:
    """A schema with its `$ref`s filled in; what refers to itself stays open."""
    if isinstance(schema, list):
        return [_whole(part, parts, depth) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name:
        return _whole(parts.get(name, {}), parts, depth + 1) if depth < 8 else {}
    return {key: _whole(part, parts, depth) for key, part in schema.items() if key != "$defs"}
