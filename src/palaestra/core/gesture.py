"""Gestures: what a person does at a web page, a desktop or a phone; one grammar for all three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "click",
    "double",  # two clicks
    "right",  # a click of the right button, or a long press
    "hover",
    "type",
    "press",
    "scroll",
    "drag",
    "select",
    "upload",
    "go",  # to an address
    "back",
    "forward",
    "tab",  # change to a tab, open or close one
    "wait",
    "say",  # to the user
    "answer",  # ends the episode
    "give up",  # ends the episode: the task is impossible
]


@dataclass(frozen=True, slots=True)
class Id:
    """An element by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An element by the number that the picture shows on it."""

    number: int


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the picture: in pixels, or in shares of its width and height from 0 to 1."""

    x: float
    y: float
    unit: Literal["pixels", "shares"] = "pixels"


@dataclass(frozen=True, slots=True)
class Words:
    """An element by words that describe it, which a locator resolves."""

    words: str


Target = Id | Mark | Point | Words


@dataclass(frozen=True, slots=True)
class Gesture:
    """One gesture; see `Kind` for those that there are."""

    kind: Kind
    target: Target | None = None  # None: where the focus or the pointer is, or none is needed
    to: Target | None = None  # of a drag
    text: str = ""
    """What is typed, said or answered, the keys ("Control+a"), the address, the option, the path of
    a file, what to do with tabs ("new", "close", "2")."""

    amount: tuple[float, float] = (0.0, 0.0)
    """How far to scroll to the right and down, in pixels; of `wait`: (seconds, 0)."""

    enter: bool = False  # after `type`: press Enter
    clear: bool = False  # before `type`: empty the field
