"""A challenge: what a page asks for, what it may know, what proves that it was done, and how.

A page knows `shown` only. What was done on it goes to the site as a JSON value; if that is the
proof, the site answers with the completion code, a function of the challenge and the task's seed.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

CANVAS = (20, 120)  # the upper left corner of a page's canvas, see `pages/challenge.css`
CODE = 8  # characters of a completion code, of 32: 40 bits


@dataclass(frozen=True, slots=True)
class Challenge:
    """One task on a page."""

    goal: str
    plan: tuple[str, ...]
    """The reference: gestures on the page as it was loaded, until it shows the code."""
    proof: Callable[[Any], bool]
    """Whether what the page sends proves that the task is done; the value may be anything."""
    shown: Mapping[str, Any] = field(default_factory=dict)  # what the page's script gets at once
    ask: Callable[[Any], Any] | None = None
    """What the site answers to the page's questions, such as the next card; of any value."""
    files: Mapping[str, bytes] = field(default_factory=dict)  # that can be uploaded
    downloads: Mapping[str, bytes] = field(default_factory=dict)  # by name, under /download/


Maker = Callable[[random.Random], Challenge]
"""Makes the challenge of a task; all chance is from the generator."""


def equals(wanted: Any) -> Callable[[Any], bool]:
    """Return the proof that is a JSON value, of the same types."""
    return lambda given: type(given) is type(wanted) and given == wanted


def at(x: float, y: float) -> str:
    """Return the target of a gesture at a point of the page's canvas, in pixels of the window."""
    left, top = CANVAS
    return f"({left + x:g}, {top + y:g})"


def code_of(name: str, seed: int) -> str:
    """Return the completion code of a challenge in the task of a seed."""
    digest = hashlib.blake2b(f"challenge {name} {seed}".encode(), digest_size=CODE * 5 // 8)
    return base64.b32encode(digest.digest()).decode()
