"""The published multi-turn tasks of BFCL, read from the package's own files.

The package's reader creates folders beside itself when it is imported and locks every file that it
reads, so the files are read here. A function's description becomes a JSON schema as in the package
for OpenAI's models (with the package's table of types), without the sentence that it adds to each
description, that the function "is in Python 3 syntax".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.category_mapping import MULTI_TURN_CATEGORY, VERSION_PREFIX
from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.environments.shared.tool_call_parsing import parsed_call

CATEGORIES: tuple[str, ...] = tuple(MULTI_TURN_CATEGORY)
FOLDER = Path(bfcl_eval.__path__[0]) / "data"
OF_THE_APP = "Tool description: "  # the text before it is the same for all tools of an app


@dataclass(frozen=True)
class Conversation:
    """One task: the user's request of each turn, the apps, and the true calls."""

    id: str  # e.g. "multi_turn_base_0"
    requests: tuple[str, ...]
    apps: tuple[str, ...]  # the package's class names
    start: Mapping[str, Any]  # the apps' initial states
    tools: tuple[Tool, ...]  # available in the first turn
    later: Mapping[int, tuple[Tool, ...]]  # available from that turn on
    truth: Sequence[Sequence[str]]  # calls of each turn, as published

    @property
    def category(self) -> str:
        return self.id.rpartition("_")[0]

    @property
    def is_long(self) -> bool:
        """Whether the apps have thousands of additional entries, by the package's rule."""
        return "long_context" in self.category

    @cached_property
    def known(self) -> tuple[Tool, ...]:
        """Every function of the apps, available now or later, without types of arguments."""
        return untyped([*self.tools, *(tool for tools in self.later.values() for tool in tools)])

    @cached_property
    def solution(self) -> tuple[tuple[ToolCall, ...], ...]:
        """The true calls of each turn, with named arguments."""
        turns = [[parsed_call(text, self.known) for text in turn] for turn in self.truth]
        return tuple(tuple(call for call in turn if call is not None) for turn in turns)


@cache
def conversations(category: str) -> tuple[Conversation, ...]:
    """Return all tasks of a category, in the published order."""
    name = f"{VERSION_PREFIX}_{category}.json"
    answers = {row["id"]: row["ground_truth"] for row in _rows(FOLDER / "possible_answer" / name)}
    return tuple(_conversation(row, answers[row["id"]]) for row in _rows(FOLDER / name))


@cache
def by_id(category: str) -> Mapping[str, Conversation]:
    return {conversation.id: conversation for conversation in conversations(category)}


@cache
def all_tools() -> tuple[Tool, ...]:
    """Return every function of the apps that any multi-turn task uses."""
    apps = {app: None for category in CATEGORIES for c in conversations(category) for app in c.apps}
    return tuple(tool for app in sorted(apps) for tool in app_tools(app))


@cache
def app_tools(app: str) -> tuple[Tool, ...]:
    """Return the functions of an app, in the order of its file."""
    rows = _rows(FOLDER / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[app])
    return tuple(tool_of(row) for row in rows)


def tool_of(row: Mapping[str, Any]) -> Tool:
    """Return a function's published description as a tool."""
    properties = {
        name: schema_of(schema, named=True)
        for name, schema in row["parameters"]["properties"].items()
    }
    parameters = {**row["parameters"], "type": "object", "properties": properties}
    return Tool(row["name"], row["description"], parameters)


def schema_of(schema: Mapping[str, Any], named: bool = False) -> dict[str, Any]:
    """Return a published type as JSON schema; only named values are marked as floats."""
    found = {**schema, "type": GORILLA_TO_OPENAPI.get(schema.get("type", "string"), "string")}
    if named and schema.get("type") == "float":
        found["format"] = "float"
        found["description"] = schema["description"] + " This is a float type value."
    if "items" in schema:
        found["items"] = schema_of(schema["items"])
    if "properties" in schema:
        found["properties"] = {
            name: schema_of(inner, named=True) for name, inner in schema["properties"].items()
        }
    return found


def untyped(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools with names and arguments only, because the apps check the values."""
    return tuple(
        Tool(tool.name, _description(tool), {"properties": {name: {} for name in _named(tool)}})
        for tool in tools
    )


def listing(tools: Sequence[Tool]) -> str:
    """Return one line per tool, with the published descriptions of its arguments."""
    return "\n".join(_line(tool) for tool in tools)


def _line(tool: Tool) -> str:
    line = Tool(tool.name, _description(tool), tool.parameters).signature
    about = _about(_named(tool))
    return " ".join(f"{line} {about}".split())


def _named(tool: Tool) -> Mapping[str, Any]:
    return tool.parameters["properties"]


def _description(tool: Tool) -> str:
    return tool.description.rpartition(OF_THE_APP)[2]


def _about(properties: Mapping[str, Any]) -> str:
    parts = []
    for name, schema in properties.items():
        inner = schema.get("properties")
        text = f"{schema['description']} {_about(inner)}" if inner else schema["description"]
        parts.append(f"{name}: {text}")
    return " ".join(parts)


def _conversation(row: Mapping[str, Any], truth: Sequence[Sequence[str]]) -> Conversation:
    held = {int(turn): names for turn, names in row.get("missed_function", {}).items()}
    tools = {tool.name: tool for app in row["involved_classes"] for tool in app_tools(app)}
    later = {turn: tuple(tools.pop(name) for name in names) for turn, names in held.items()}
    return Conversation(
        id=row["id"],
        requests=tuple(
            turn[0]["content"] if turn else DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
            for turn in row["question"]
        ),
        apps=tuple(row["involved_classes"]),
        start=row["initial_config"],
        tools=tuple(tools.values()),
        later=later,
        truth=truth,
    )


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
