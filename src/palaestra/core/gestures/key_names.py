"""Keys, as gestures name them and as other systems do.

A key has the name of the DOM's `KeyboardEvent.key` (https://www.w3.org/TR/uievents-key/), as in
Playwright: "Enter", "ArrowDown", "a", "Control". Keys pressed together are joined by "+":
"Control+Shift+t"; the plus sign itself comes last: "Control++".
"""

from __future__ import annotations

from palaestra.core.errors import InputError

MODIFIERS = ("Control", "Shift", "Alt", "Meta")
NAMED = (
    *MODIFIERS,
    *"Enter Tab Escape Backspace Delete Insert Home End PageUp PageDown".split(),
    *"ArrowUp ArrowDown ArrowLeft ArrowRight CapsLock PrintScreen ContextMenu".split(),
    *(f"F{number}" for number in range(1, 13)),
)
SPACE = "Space"  # the key whose character is a blank
KEYS = frozenset({*NAMED, SPACE})


def split_keys(text: str) -> tuple[str, ...]:
    """Return the keys of "Control+a", in order: ("Control", "a")."""
    if text == "+":
        return ("+",)
    if text.endswith("++"):
        return (*text[:-2].split("+"), "+")
    return tuple(text.split("+"))


def check_keys(text: str) -> None:
    """Raise InputError if one of the joined keys does not exist."""
    for key in split_keys(text):
        if key not in KEYS and (len(key) != 1 or not key.isprintable() or key == " "):
            raise InputError(
                f"'{key}' in '{text}' is no key; give keys like 'Enter', 'Control+a', 'ArrowDown' "
                "or one character."
            )
