"""Messages: what agents and models exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Speaker = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as a model asks for it."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        """As Python writes it, and `parse_call` reads it: `name(argument='value', other=3)`."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({arguments})"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; equal messages are the same to a renderer."""

    role: Speaker
    content: str
    images: tuple[str, ...] = ()  # PNGs in base64, for models that see


def system(content: str) -> Message:
    return Message("system", content)


def user(content: str, *images: str) -> Message:
    return Message("user", content, images)


def assistant(content: str) -> Message:
    return Message("assistant", content)
