"""Message contents in the protocols' formats: text parts and image parts, in any order.

Images must be inline. The gateway fetches no URL, since a program could direct it anywhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence

from palaestra.core.errors import InputError
from palaestra.core.message import Image, Message, Text, tool_result
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.request_fields import Shape

IMAGES = ("image_url", "input_image", "image")
"""The type names of image parts in the protocols."""


class ImageURL(Shape):
    """The URL of an image, a `data:` URL."""

    url: str


class Source(Shape):
    """The data of an image in Anthropic's protocol."""

    type: str
    media_type: str | None = None
    data: str | None = None

    @property
    def data_url(self) -> str:
        """Return the data as a `data:` URL; empty if they are not inline."""
        return f"data:;base64,{self.data or ''}" if self.type == "base64" else ""


class Part(Shape):
    """A part of a message's content."""

    type: str
    text: str | None = None
    image_url: ImageURL | str | None = None  # OpenAI's protocols
    source: Source | None = None  # Anthropic's protocol

    @property
    def data_url(self) -> str:
        """Return the URL of its image; empty if it has none."""
        if self.source is not None:
            return self.source.data_url
        url = self.image_url
        return url.url if isinstance(url, ImageURL) else url or ""


Content = str | Sequence[Part] | None


def texts(content: Content, kinds: tuple[str, ...] = ("text",)) -> tuple[Text, ...]:
    """Return the text parts of a content that may hold nothing else.

    Raises:
        HTTPError: a part is not text.
    """
    return tuple(_texts(content, kinds))


def texts_and_images(
    content: Content, kinds: tuple[str, ...] = ("text",)
) -> tuple[Text | Image, ...]:
    """Return the parts of a content, in order.

    Raises:
        HTTPError: a part is neither text nor a supported image.
    """
    if content is None or isinstance(content, str):
        return texts(content)
    found: list[Text | Image] = []
    for part in content:
        found += [image(part.data_url)] if part.type in IMAGES else texts([part], kinds)
    return tuple(found)


def result(
    content: Content, id: str, kinds: tuple[str, ...] = ("text",), *, error: bool = False
) -> Message:
    """Return the result of a tool call; raises HTTPError like `texts_and_images`."""
    parts = texts_and_images(content, kinds)
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    shown = [part for part in parts if isinstance(part, Image)]
    return tool_result(text, id=id, error=error, images=shown)


def image(url: str) -> Image:
    """Return the image of a URL of the form `data:…;base64,…`.

    Raises:
        HTTPError: the URL has another form, or the data are not a PNG, JPEG, GIF or WebP.
    """
    head, _, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise _image_error("must be base64 data in its message, not an address or a file")
    try:
        return Image.of(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise _image_error("must be valid base64") from None
    except InputError:
        raise _image_error("must be a PNG, JPEG, GIF or WebP") from None


def _texts(content: Content, kinds: tuple[str, ...]) -> Iterator[Text]:
    if isinstance(content, str):
        yield from [Text(content)] if content else []
        return
    for part in content or ():
        if part.type not in kinds or part.text is None:
            raise HTTPError(
                400, f"A part of the type '{part.type}' is not text; send text.", "invalid"
            )
        if part.text:
            yield Text(part.text)


def _image_error(rule: str) -> HTTPError:
    return HTTPError(400, f"An image {rule}.", "invalid")
