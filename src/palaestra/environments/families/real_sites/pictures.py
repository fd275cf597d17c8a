"""Pictures of goods: a coloured shape on a ground, drawn from the picture's name."""

from __future__ import annotations

import io
from functools import cache

from PIL import Image, ImageDraw

SIZE = 96  # pixels
SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross")
COLOURS = {
    "red": (200, 30, 40), "green": (30, 140, 60), "blue": (40, 80, 200), "yellow": (240, 200, 30),
    "black": (30, 30, 30), "white": (250, 250, 250), "orange": (240, 130, 20),
    "purple": (120, 50, 160),
}  # fmt: skip
GROUND = (225, 225, 225)


def name_of(shape: str, colour: str) -> str:
    """Return the name of a picture, without its address."""
    return f"drawn/{shape}-{colour}.png"


@cache
def drawn_picture(name: str) -> bytes | None:
    """Return the picture of a name as a PNG; None: it is the name of none."""
    shape, _, colour = name.removeprefix("drawn/").removesuffix(".png").partition("-")
    if shape not in SHAPES or colour not in COLOURS or name != name_of(shape, colour):
        return None
    picture = Image.new("RGB", (SIZE, SIZE), GROUND)
    pen, ink = ImageDraw.Draw(picture), COLOURS[colour]
    near, middle, far = 12, SIZE // 2, SIZE - 12
    corners = {
        "square": [(near, near), (far, near), (far, far), (near, far)],
        "triangle": [(middle, near), (far, far), (near, far)],
        "diamond": [(middle, near), (far, middle), (middle, far), (near, middle)],
    }
    if shape in corners:
        pen.polygon(corners[shape], ink)
    elif shape == "cross":
        pen.line([(near, near), (far, far)], ink, 16)
        pen.line([(near, far), (far, near)], ink, 16)
    elif shape == "ring":
        pen.ellipse([near, near, far, far], outline=ink, width=16)
    else:
        pen.ellipse([near, near, far, far], ink)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
