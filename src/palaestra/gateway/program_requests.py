"""Questions of programs and answers to them, independent of the protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.message import Message, ToolCall, assistant
from palaestra.core.model import Generation
from palaestra.core.tool import Tool
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.structured_output import Form


@dataclass(frozen=True, slots=True)
class Received:
    """One message of a program's conversation."""

    message: Message
    ids: tuple[str, ...] = ()  # the protocol's ids of it, besides those of its calls


@dataclass(frozen=True, slots=True)
class Question:
    """A request of a program to the model."""

    messages: tuple[Received, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"  # or "none", "required", a tool's name
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    form: Form | None = None  # None: any text
    logprobs: bool = False  # whether it requests them for the sampled tokens
    fields: Mapping[str, str] = field(default_factory=dict)
    """This protocol's names of options, such as `max_tokens`, where they differ."""
    ignored: tuple[str, ...] = ()  # fields that are set but not supported
    number: int = 0  # unique in its session; ids of replies and calls contain it
    role: str = "agent"  # which the program asks, see `role_of`

    @property
    def calls(self) -> bool:
        """Return whether the reply may call tools."""
        return bool(self.tools) and self.tool_choice != "none"

    def field_of(self, name: str) -> str:
        """Return the protocol's name of the option `name`."""
        return self.fields.get(name, name)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as the program receives it, and its position in the message graph."""

    index: int | None  # of the call; None: the episode was over, so there was none
    number: int  # of the question
    parent: int | None  # the call that it continues; None: it begins a branch
    generation: Generation
    text: str  # without calls, up to the program's stop string
    tool_calls: tuple[ToolCall, ...] = ()  # each with an id
    stopped: str | None = None  # the program's stop string that ended it
    tokens: tuple[tuple[str, float], ...] = ()  # as texts, with their log-probabilities
    ignored: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """Return the model's name as programs see it."""
        return public_name(self.generation.policy)

    @property
    def message(self) -> Message:
        """Return the reply as the message that the program sends back."""
        made = self.generation
        return assistant(
            self.text,
            reasoning=made.reasoning,
            signature=made.signature,
            tool_calls=self.tool_calls,
        )

    @property
    def about(self) -> dict[str, Any]:
        """Return the `palaestra` field of a response, which links it to its record."""
        branch = "begins" if self.parent is None else "continues"
        return {
            "call": self.index,
            "parent": self.parent,
            "branch": None if self.index is None else branch,
            "policy_version": self.generation.version,
            "ignored": list(self.ignored),
        }


def role_of(model: str) -> str:
    """Return the role that a program asks by a model's name: "planner" by "palaestra/planner".

    Any other name asks the agent. So a program with several agents tells which of them speaks.

    Raises:
        HTTPError: what follows "palaestra/" is no name of letters, digits, "_" and "-".
    """
    head, slash, role = model.partition("/")
    if head != "palaestra" or not slash:
        return "agent"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", role):
        raise HTTPError(
            400,
            f"model: '{model[:100]}' names no role; write palaestra/NAME, such as "
            "palaestra/planner.",
            "invalid",
        )
    return role


def public_name(model: str) -> str:
    """Return the name of a model without its server's address."""
    return model.partition("@")[0]


def without_address(text: str, models: Iterable[str]) -> str:
    """Replace models by their `public_name` in a text and remove their addresses."""
    for model in models:
        name, at, address = model.partition("@")
        if at and address:
            text = text.replace(model, name).replace(address, "the model's address")
    return text
