"""JSON that every program reads: finite numbers, text that can be encoded, bounded depth.

Python's `json` takes more by itself: `NaN`, numbers beyond all bounds, and the halves of characters
(lone surrogates), spelt as escapes or as the bytes that no UTF-8 has. What holds any of them can be
neither recorded nor sent on.
"""

from __future__ import annotations

import json
import math
from typing import Any

DEEPEST = 100  # levels of objects and lists in each other


def parsed(text: str) -> Any:
    """The JSON of a whole text; raises ValueError for any other text."""
    found, end = first(text, _start(text, 0))
    if _start(text, end) != len(text):
        raise ValueError(f"more follows at character {end}")
    return found


def first(text: str, start: int) -> tuple[Any, int]:
    """The JSON that begins at `start`, and where it ends; raises ValueError where there is none."""
    try:
        found, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _deep(found):
        raise ValueError(f"it is nested in more than {DEEPEST} levels")
    if text.find("\\u", start, end) >= 0:
        json.dumps(found, ensure_ascii=False).encode()  # raises for lone surrogates
    return found, end


def _start(text: str, place: int) -> int:
    """Where the next thing begins behind blanks."""
    while text[place : place + 1] in (" ", "\t", "\n", "\r"):
        place += 1
    return place


def _deep(value: Any, left: int = DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(not left or _deep(part, left - 1) for part in inner if isinstance(part, dict | list))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
