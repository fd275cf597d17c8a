"""Pictures on which the elements to act on have numbered boxes (set-of-marks, Yang et al. 2023)."""

from __future__ import annotations

import io
from collections.abc import Sequence

from palaestra.core.element import Box, Element
from palaestra.core.element_text import marked

COLOURS = ("#c62828", "#1565c0", "#2e7d32", "#6a1b9a", "#ad1457", "#00695c", "#4e342e", "#283593")
"""Dark enough for white digits."""

PADDING = 2  # pixels around the digits of a number


def with_marks(picture: bytes, elements: Sequence[Element]) -> bytes:
    """Return a PNG with a box and a number on each element that has a mark; see `marked`.

    A number stands at the upper left corner of its box, moved as far as the picture's edge needs.
    """
    from PIL import Image, ImageDraw, ImageFont

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default()
    for number, element in enumerate(marked(elements), 1):
        if element.box is None:
            continue
        colour, text = COLOURS[number % len(COLOURS)], str(number)
        left, top, right, bottom = _corners(element.box)
        draw.rectangle((left, top, right, bottom), outline=colour)
        start_x, start_y, end_x, end_y = draw.textbbox((0, 0), text, font=font)
        width, height = end_x - start_x + 2 * PADDING, end_y - start_y + 2 * PADDING
        x = max(0, min(left, image.width - width))
        y = max(0, min(top, image.height - height))
        draw.rectangle((x, y, x + width, y + height), fill=colour)
        draw.text((x + PADDING - start_x, y + PADDING - start_y), text, fill="white", font=font)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=False)
    return file.getvalue()


def _corners(box: Box) -> tuple[float, float, float, float]:
    """Return the first and the last pixel of a box; the right and lower edges lie outside."""
    return box.x, box.y, max(box.x, box.x + box.width - 1), max(box.y, box.y + box.height - 1)
