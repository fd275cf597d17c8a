"""Messages: what agents and models exchange; a role and parts."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

from palaestra.core.errors import InputError

Role = Literal["system", "user", "assistant", "tool"]

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image, identified by the hash of its bytes."""

    type: ClassVar[Literal["image"]] = "image"
    sha256: str
    media_type: str = field(compare=False)
    size: int = field(compare=False)  # in bytes
    data: bytes = field(compare=False, repr=False)  # a run stores equal bytes once

    @classmethod
    def of(cls, data: bytes) -> Image:
        """Return the image of a file's bytes.

        Raises:
            InputError: they do not begin like a PNG, a JPEG, a GIF or a WebP.
        """
        media_type = _media_type(data)
        if media_type is None:
            raise InputError(
                f"An image of {len(data)} bytes begins with {data[:8]!r}, and models do not "
                "read its format; give a PNG, a JPEG, a GIF or a WebP."
            )
        return cls(hashlib.sha256(data).hexdigest(), media_type, len(data), bytes(data))

    @property
    def base64(self) -> str:
        """The bytes in base64, as JSON carries them."""
        return b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The image as a `data:` URL."""
        return f"data:{self.media_type};base64,{self.base64}"


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """The place of an image among the tokens of a prompt.

    Its first token stands for the image; so does each equal one before `stop`. The k-th of them
    takes the k-th vector that the model's vision tower makes of the image.
    """

    image: Image
    start: int  # of its first token that stands for it
    stop: int  # after its last one

    def moved(self, by: int) -> ImageSpan:
        """Return the span `by` tokens further on."""
        return ImageSpan(self.image, self.start + by, self.stop + by)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasoning of a model before its reply, separate from the reply."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    signature: str = ""  # opaque; sent back to the provider that returned it


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by a model."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    name: str
    arguments: Mapping[str, Any]
    id: str = ""  # links it to its result; empty where the model gives none

    def __str__(self) -> str:
        """Return the form that `parse_call` reads: `name(argument='value', other=3)`."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({arguments})"

    def __hash__(self) -> int:
        """Hash all but the arguments' values, which may be lists and mappings."""
        return hash((self.name, self.id, frozenset(self.arguments)))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    text: str
    id: str = ""  # of its call
    error: bool = False  # the call failed
    name: str = ""  # of the tool


Part = Text | Image | Reasoning | ToolCall | ToolResult
P = TypeVar("P", Text, Image, Reasoning, ToolCall, ToolResult)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; equal messages are the same to a renderer."""

    role: Role
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if type(self.parts) is not tuple or str in map(type, self.parts):
            raise InputError(
                f"The parts of a message are a tuple of Text, Image and the like, not "
                f"{self.parts!r:.60}; for plain text, write {self.role}('…')."
            )

    @property
    def text(self) -> str:
        """The text and the tool results, one per line; without reasoning and calls."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        return "\n".join(part.text for part in self.parts if isinstance(part, Text | ToolResult))

    @property
    def images(self) -> tuple[Image, ...]:
        """The images, in order."""
        return self._of(Image)

    @property
    def reasoning(self) -> str:
        """The model's reasoning, one part per line."""
        return "\n".join(part.text for part in self._of(Reasoning))

    @property
    def signature(self) -> str:
        """The signature of the last reasoning part that has one."""
        found = [part.signature for part in self._of(Reasoning) if part.signature]
        return found[-1] if found else ""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of a reply, in order."""
        return self._of(ToolCall)

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results, in order."""
        return self._of(ToolResult)

    def _of(self, kind: type[P]) -> tuple[P, ...]:
        return tuple(part for part in self.parts if isinstance(part, kind))


def text_message(role: Role, text: str, *images: Image) -> Message:
    """Return a message of text and images; empty text adds no part."""
    parts: tuple[Part, ...] = (Text(text),) if text else ()
    return Message(role, (*parts, *images) if images else parts)


def system(text: str) -> Message:
    """Return the instructions of a conversation."""
    return text_message("system", text)


def user(text: str, *images: Image) -> Message:
    """Return a message of the user or the environment."""
    return text_message("user", text, *images)


def assistant(
    text: str, *, reasoning: str = "", signature: str = "", tool_calls: Sequence[ToolCall] = ()
) -> Message:
    """Return a reply: reasoning, text and tool calls; empty ones add no part."""
    parts: tuple[Part, ...] = (Text(text),) if text else ()
    if reasoning or signature:
        parts = (Reasoning(reasoning, signature), *parts)
    return Message("assistant", (*parts, *tool_calls) if tool_calls else parts)


def tool_result(
    text: str, *, id: str = "", error: bool = False, name: str = "", images: Sequence[Image] = ()
) -> Message:
    """Return the result of a tool, with its images."""
    return Message("tool", (ToolResult(text, id, error, name), *images))


def reworded(message: Message, edit: Callable[[str], str]) -> Message:
    """Return the message with each text and tool result edited; a text left empty is no part."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text | ToolResult):
            part = replace(part, text=edit(part.text))
            if isinstance(part, Text) and not part.text:
                continue
        parts.append(part)
    return Message(message.role, tuple(parts))


def _media_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes; None if models cannot read it."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)
