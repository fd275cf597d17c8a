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
    images: tuple[str, ...] = ()  # in base64, each of a `picture_type`; for models that see


def system(content: str) -> Message:
    return Message("system", content)


def user(content: str, *images: str) -> Message:
    return Message("user", content, images)


def assistant(content: str) -> Message:
    return Message("assistant", content)


_BEGINNINGS = {  # of files in base64
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}


def picture_type(image: str) -> str | None:
    """The media type of a picture in base64, as it begins; None: no picture that models take."""
    return next((kind for start, kind in _BEGINNINGS.items() if image.startswith(start)), None)
