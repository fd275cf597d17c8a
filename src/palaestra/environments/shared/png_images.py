"""Arrays of pixels as PNGs; equal arrays give equal bytes."""

from __future__ import annotations

import io
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(pixels: Any) -> bytes:
    """Encode uint8[height, width, 3] as a PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=False)
    return file.getvalue()
