"""Gestures: what a person does at a web page, a desktop or a phone; one grammar for all three.

A gesture that lacks what its kind needs, or has what its kind does not use, cannot be made. Its
one line of text is in `gestures/gesture_line.py`, its tools in `gestures/gesture_tools.py`, the
actions of other systems in `gestures/dialects.py`, and how a target becomes a point in
`gestures/locating.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from palaestra.core.errors import InputError
from palaestra.core.gestures.key_names import check_keys

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
    "home",  # to the home screen of a phone
    "open",  # an application
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
    """A point of the picture: in pixels, or in shares of its width and height from 0 to 1.

    Raises:
        InputError: a coordinate is not finite, or a share lies outside of 0 to 1.
    """

    x: float
    y: float
    unit: Literal["pixels", "shares"] = "pixels"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.x) and math.isfinite(self.y)):
            raise InputError(f"({self.x}, {self.y}) is no point; give finite numbers.")
        if self.unit == "shares" and not (0 <= self.x <= 1 and 0 <= self.y <= 1):
            raise InputError(f"The shares ({self.x}, {self.y}) lie outside of 0 to 1.")


@dataclass(frozen=True, slots=True)
class Words:
    """An element by words that describe it, which a locator resolves."""

    words: str


Target = Id | Mark | Point | Words


@dataclass(frozen=True, slots=True)
class Gesture:
    """One gesture; see `Kind` for those that there are.

    Raises:
        InputError: it lacks what its kind needs, or has what its kind does not use.
    """

    kind: Kind
    target: Target | None = None  # None: where the focus or the pointer is, or none is needed
    to: Target | None = None  # of a drag
    text: str = ""
    """What is typed, said or answered, the keys ("Control+a", see `gestures/key_names.py`), the
    address, the option, the path of a file, the application, why the agent gives up, what to do
    with tabs ("new", "close", or the number of the one to change to, from 0)."""

    amount: tuple[float, float] = (0.0, 0.0)
    """How far to scroll to the right and down, in `unit`; of `wait`: (seconds, 0)."""

    unit: Literal["pixels", "pages"] = "pixels"
    """Of the amount: pixels, or widths and heights of what is visible of the scrolled element."""

    enter: bool = False  # after `type`: press Enter
    clear: bool = False  # before `type`: empty the field

    def __post_init__(self) -> None:
        if self.kind not in USES:
            raise InputError(f"There is no gesture '{self.kind}'; known: {', '.join(USES)}.")
        needed, optional = USES[self.kind]
        for field in _FIELDS:
            given = getattr(self, field) != _UNSET[field]
            if field in needed and not given:
                raise InputError(f"The gesture '{self.kind}' needs {_CALLED[field]}.")
            if given and field not in needed and field not in optional:
                raise InputError(f"The gesture '{self.kind}' takes no {field}; leave it out.")
        self._check_values()

    def _check_values(self) -> None:
        if not all(map(math.isfinite, self.amount)):
            raise InputError(f"'{self.kind}' by {self.amount}; give finite numbers.")
        match self.kind:
            case "type" if not (self.text or self.enter or self.clear):
                raise InputError("The gesture 'type' needs a text, `enter` or `clear`.")
            case "press":
                check_keys(self.text)
            case "wait" if self.amount[0] < 0 or self.amount[1]:
                raise InputError(f"Wait {self.amount}; give (seconds, 0), not below 0.")
            case "tab" if self.text not in ("new", "close") and not _is_number(self.text):
                raise InputError(f"Tab '{self.text}'; give its number from 0, 'new' or 'close'.")


USES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "click": ((), ("target",)),
    "double": ((), ("target",)),
    "right": ((), ("target",)),
    "hover": (("target",), ()),
    "type": ((), ("target", "text", "enter", "clear")),
    "press": (("text",), ("target",)),
    "scroll": (("amount",), ("target", "unit")),
    "drag": (("to",), ("target",)),
    "select": (("target", "text"), ()),
    "upload": (("target", "text"), ()),
    "go": (("text",), ()),
    "back": ((), ()),
    "forward": ((), ()),
    "home": ((), ()),
    "open": (("text",), ()),
    "tab": (("text",), ()),
    "wait": ((), ("amount",)),
    "say": (("text",), ()),
    "answer": ((), ("text",)),
    "give up": ((), ("text",)),
}
"""Kind -> (the fields that it needs, those that it may have besides)."""

_FIELDS = tuple(field.name for field in fields(Gesture) if field.name != "kind")
_UNSET = {field.name: field.default for field in fields(Gesture)}
_CALLED = {
    "target": "a target: an element's id, its mark, a point, or words",
    "to": "a target to end at: an element's id, its mark, a point, or words",
    "text": "a text",
    "amount": "an amount other than 0",
}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text
