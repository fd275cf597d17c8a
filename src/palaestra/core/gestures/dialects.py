"""Dialects: the actions of other systems, read as gestures and written from them.

Each is one file beside this one. `write` refuses in one sentence what a dialect cannot say, and
`read(write(gesture)) == [gesture]` for what it can, up to the rounding of points.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gesture import Gesture
from palaestra.core.gestures import (
    aitw_actions,
    androidworld_actions,
    anthropic_computer,
    browsergym_actions,
    openai_computer,
    pyautogui_code,
    ui_tars_actions,
    webarena_actions,
)
from palaestra.core.gestures.gesture_line import write_line


@dataclass(frozen=True)
class Dialect:
    """How another system writes gestures."""

    name: str  # of the system, for errors
    forms: tuple[str, ...]  # one action of each form
    read: Callable[[str], list[Gesture]]  # raises InputError for what is no action
    write: Callable[[Gesture], str]  # raises InputError for what it cannot say


_FILES = {
    "aitw": aitw_actions,
    "androidworld": androidworld_actions,
    "anthropic": anthropic_computer,
    "browsergym": browsergym_actions,
    "openai": openai_computer,
    "pyautogui": pyautogui_code,
    "ui-tars": ui_tars_actions,
    "webarena": webarena_actions,
}
DIALECTS = {
    name: Dialect(file.NAME, file.FORMS, file.read, file.write) for name, file in _FILES.items()
}


def dialect(name: str) -> Dialect:
    """Return the dialect of that name; raises UnknownName if there is none."""
    if name not in DIALECTS:
        raise UnknownName("dialect of gestures", name, DIALECTS)
    return DIALECTS[name]


def translated(text: str) -> tuple[str, list[str]]:
    """Return the system whose action a text is, and the lines of its gestures; empty without."""
    for known in DIALECTS.values():
        with suppress(InputError):
            return known.name, list(map(write_line, known.read(text)))
    return "", []


def read_single(text: str, dialect: Dialect) -> Gesture:
    """Return the one gesture of an action; raises InputError if it is none, or several."""
    found = dialect.read(text)
    if len(found) != 1:
        lines = "; ".join(map(write_line, found[:3]))
        raise InputError(f"These are {len(found)} gestures ({lines}); give one at a time.")
    return found[0]
