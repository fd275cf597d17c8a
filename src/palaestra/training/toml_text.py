"""TOML values as text."""

from __future__ import annotations

import json
import math
import re
from typing import Any


def is_set(value: object) -> bool:
    """Return whether a value has a form in TOML: neither None nor an empty table."""
    return value is not None and value != {}


def toml_value(value: Any) -> str:
    """Format a TOML value: JSON's strings, finite numbers and booleans are valid TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        inner = (
            f"{toml_key(key)} = {toml_value(one)}" for key, one in value.items() if is_set(one)
        )
        return "{" + ", ".join(inner) + "}"
    return str(value) if value in (math.inf, -math.inf) else json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    """Return a key, in quotes unless it is a bare one."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
