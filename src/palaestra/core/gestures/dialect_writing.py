"""What the writers of dialects share.

Writers round points to what their dialect can hold (whole pixels, thousandths of the width); all
else that a dialect cannot say exactly is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Point, Target
from palaestra.core.gestures.dialect_reading import NOTCH, PAGES
from palaestra.core.gestures.gesture_line import number_text, write_line


def cannot(dialect: str, gesture: Gesture, instead: str) -> NoReturn:
    """Raise the InputError of a gesture that a dialect cannot say."""
    raise InputError(f"{dialect} cannot say `{write_line(gesture)}`: {instead}.")


def whole_pixels(dialect: str, gesture: Gesture, target: Target | None) -> tuple[int, int]:
    """Return a point in whole pixels; raises if the target is none."""
    if not isinstance(target, Point) or target.unit != "pixels":
        cannot(dialect, gesture, "its targets are points in pixels")
    return round(target.x), round(target.y)


def typed(gesture: Gesture) -> str:
    """Return the text of `type`, in which a line's end at the end is Enter."""
    return gesture.text + "\n" * gesture.enter


def plainly_typed(dialect: str, gesture: Gesture) -> str:
    """Return the text of a `type` without target and clearing; raises for another."""
    if gesture.target is not None:
        cannot(dialect, gesture, "it types where the focus is; click the field first")
    if gesture.clear:
        cannot(dialect, gesture, "it does not empty fields; press 'Control+a' first")
    if gesture.text.endswith("\n") and not gesture.enter:
        cannot(dialect, gesture, "its text would press Enter at the end; add `enter`")
    return typed(gesture)


def notches(dialect: str, gesture: Gesture) -> tuple[int, int]:
    """Return the scrolled amount in whole notches of the wheel, to the right and down."""
    right, down = gesture.amount
    if gesture.unit != "pixels" or right % NOTCH or down % NOTCH:
        cannot(dialect, gesture, f"it scrolls by notches of {NOTCH:.0f} pixels each")
    return round(right / NOTCH), round(down / NOTCH)


def page_direction(dialect: str, gesture: Gesture) -> str:
    """Return "up", "down", "left" or "right" of a scroll by one page; raises for another."""
    found = {pages: name for name, pages in PAGES.items()}.get(gesture.amount)
    if gesture.unit != "pages" or found is None:
        cannot(dialect, gesture, "it scrolls by one page in one direction")
    return found


def called(name: str, *positional: object, **named: object) -> str:
    """Return a call in Python's syntax; whole numbers have no dot."""
    parts = [_plain(value) for value in positional]
    parts += [f"{key}={_plain(value)}" for key, value in named.items()]
    return f"{name}({', '.join(parts)})"


def _plain(value: object) -> str:
    return number_text(value) if isinstance(value, float) else repr(value)


def json_text(action: Mapping[str, Any]) -> str:
    """Return an action as JSON text."""
    return json.dumps(action, ensure_ascii=False)
