"""Arrays of pixels as PNGs; equal arrays give equal bytes."""

from __future__ import annotations

import io
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def grey(picture: bytes) -> bytes:
    """Return a PNG of the same size in one grey."""
    from PIL import Image

    file = io.BytesIO()
    size = Image.open(io.BytesIO(picture)).size
    Image.new("RGB", size, (128, 128, 128)).save(file, "PNG", optimize=False)
    return file.getvalue()


def png(pixels: Any) -> bytes:
    """Encode uint8[height, width, 3] as a PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=False)
    return file.getvalue()
