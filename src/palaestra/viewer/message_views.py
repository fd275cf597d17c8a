"""Parts of messages as pages show them, each with its kind, text and picture."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from palaestra.core.errors import InputError
from palaestra.core.message import (
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from palaestra.viewer import texts

LONGEST = 200_000  # characters of a part that are shown


@dataclass(frozen=True, slots=True)
class PartView:
    """One part of a message."""

    kind: str  # "reasoning", "call", "result", "error" (a failed call's result), "picture"; or ""
    text: texts.Text
    id: str = ""  # of a call, or of the call of a result
    url: str = ""  # of a picture


def part_views(message: Message) -> list[PartView]:
    """Return the parts of a message, in order; an empty one if there are none."""
    return [_view(part) for part in message.parts] or [PartView("", texts.cut(""))]


def picture_urls(images: Iterable[Image]) -> tuple[str, ...]:
    """Return images as `data:` URLs; skip those whose bytes are not a valid picture."""
    found: list[str] = []
    for image in images:
        with contextlib.suppress(InputError):
            found.append(Image.of(image.data).url)
    return tuple(found)


def _view(part: Part) -> PartView:
    match part:
        case Text():
            return PartView("", texts.cut(part.text, LONGEST))
        case Reasoning():
            return PartView("reasoning", texts.cut(part.text, LONGEST))
        case ToolCall():
            return PartView("call", texts.cut(str(part), LONGEST), texts.line(part.id, 100))
        case ToolResult():
            kind = "error" if part.error else "result"
            return PartView(kind, texts.cut(part.text, LONGEST), texts.line(part.id, 100))
        case Image():
            (url,) = picture_urls([part]) or ("",)
            about = f"{part.media_type}, {part.size:,} bytes"
            return PartView("picture", texts.cut("" if url else about), url=url)
