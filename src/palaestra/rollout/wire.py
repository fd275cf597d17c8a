"""The serialization of environments' results: validated JSON, followed by the bytes of images.

An image is sent as its bytes, and the receiver computes its hash again. A snapshot is bytes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from palaestra.core.environment import Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import Image

LENGTH = 4  # bytes of a length prefix

T = TypeVar("T")


class Wire(Generic[T]):
    """The serialization of results of one type."""

    def __init__(self, kind: Any) -> None:
        """Serialize the type `kind`; images are in an Observation or Transition at its start."""
        self._shape: TypeAdapter[T] = TypeAdapter(kind)

    def dump(self, value: T) -> bytes:
        """Return a result as bytes.

        Raises:
            ValueError: the contract does not allow it.
        """
        images = _images(value)
        if images:
            value = _showing(value, ())
        text = self._shape.serializer.to_json(value, exclude_defaults=True, warnings="error")
        return joined(text, *map(_checked, images)) if images else joined(text)

    def load(self, data: bytes) -> T:
        """Parse a result from its bytes; raises ValueError for anything else."""
        text, *images = split(data)
        value: T = self._shape.validator.validate_json(text, strict=True)
        return _showing(value, tuple(map(_image, images))) if images else value


class BytesWire(Wire[bytes]):
    """The serialization of bytes, which are sent as they are."""

    def __init__(self) -> None:
        """Serialize bytes."""
        super().__init__(bytes)

    def dump(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise ValueError(f"a {type(value).__name__}, not bytes")
        return value

    def load(self, data: bytes) -> bytes:
        return data


def joined(*chunks: bytes) -> bytes:
    """Join chunks of bytes, each with a length prefix."""
    return b"".join([len(chunk).to_bytes(LENGTH, "big") + chunk for chunk in chunks])


def split(data: bytes) -> list[bytes]:
    """Split bytes into the joined chunks; raises ValueError if they are invalid or truncated."""
    end = LENGTH + int.from_bytes(data[:LENGTH], "big")
    if end == len(data):  # one chunk, as nearly always
        return [data[LENGTH:]]
    found: list[bytes] = []
    end = 0
    while end < len(data) or not found:
        start = end + LENGTH
        end = start + int.from_bytes(data[end:start], "big")
        if len(data) < max(start, end):
            raise ValueError(f"{len(data)} bytes are cut off")
        found.append(data[start:end])
    return found


def _images(value: Any) -> Sequence[Any]:
    """Return the images of a result's observation; empty if it has no observation."""
    first = value[0] if isinstance(value, tuple) and value else None
    seen = first.observation if isinstance(first, Transition) else first
    return seen.images if isinstance(seen, Observation) else ()


def _showing(value: Any, images: tuple[Image, ...]) -> Any:
    """Return the result with these images in its observation."""
    first, *rest = value
    if isinstance(first, Transition):
        return (replace(first, observation=replace(first.observation, images=images)), *rest)
    return (replace(first, images=images), *rest)


def _checked(image: Any) -> bytes:
    """Return the bytes of an image; raises ValueError for another type."""
    if not isinstance(image, Image):
        raise ValueError(f"an observation shows a {type(image).__name__}, not an Image")
    return image.data


def _image(data: bytes) -> Image:
    try:
        return Image.of(data)
    except InputError as error:
        raise ValueError(str(error)) from error
