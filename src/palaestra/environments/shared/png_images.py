"""Arrays of pixels as PNGs; equal arrays give equal bytes."""

from __future__ import annotations

import io
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def size_of(picture: bytes) -> tuple[int, int]:
    """Return the width and height of a picture in pixels; only its header is read."""
    from PIL import Image

    return Image.open(io.BytesIO(picture)).size


def grey(picture: bytes) -> bytes:
    """Return a PNG of the same size in one grey."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size_of(picture), (128, 128, 128)).save(file, "PNG", optimize=False)
    return file.getvalue()


def png(pixels: Any) -> bytes:
    """Encode uint8[height, width, 3] as a PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=False)
    return file.getvalue()
