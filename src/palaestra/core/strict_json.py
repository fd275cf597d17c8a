"""Strict JSON: finite numbers, text that can be encoded, bounded depth.

Python's `json` also accepts `NaN`, numbers that overflow to infinity, and lone surrogates, as
escapes or as invalid UTF-8. Values with any of these can be neither recorded nor sent on.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 100  # nesting levels of objects and lists


def parsed(text: str) -> Any:
    """Parse a whole text as JSON; raises ValueError for any other text."""
    found, end = first(text, _skip_whitespace(text, 0))
    if _skip_whitespace(text, end) != len(text):
        raise ValueError(f"more follows at character {end}")
    return found


def first(text: str, start: int) -> tuple[Any, int]:
    """Parse the JSON value at `start`; return it and its end; raises ValueError if invalid."""
    try:
        found, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _too_deep(found):
        raise ValueError(f"it is nested in more than {MAX_DEPTH} levels")
    if text.find("\\u", start, end) >= 0:
        json.dumps(found, ensure_ascii=False).encode()  # raises for lone surrogates
    return found, end


def _skip_whitespace(text: str, position: int) -> int:
    """Return the position after whitespace."""
    while text[position : position + 1] in (" ", "\t", "\n", "\r"):
        position += 1
    return position


def _too_deep(value: Any, left: int = MAX_DEPTH) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(
        not left or _too_deep(part, left - 1) for part in inner if isinstance(part, dict | list)
    )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
