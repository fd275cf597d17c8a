"""Keys, as gestures name them and as other systems do.

A key has the name of the DOM's `KeyboardEvent.key` (https://www.w3.org/TR/uievents-key/), as in
Playwright: "Enter", "ArrowDown", "a", "Control". Keys pressed together are joined by "+":
"Control+Shift+t"; the plus sign itself comes last: "Control++".
"""

from __future__ import annotations

from collections.abc import Iterable

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


def key_called(name: str) -> str:
    """Return the key that another system calls by that name ("ctrl", "Return", "page_down").

    Raises:
        InputError: there is no such key.
    """
    if len(name) == 1:
        return SPACE if name == " " else name
    plain = name.lower().replace("_", "")
    found = _CALLED.get(plain)
    if found is None:
        raise InputError(f"'{name}' is no key; give keys like 'Enter', 'Control', 'ArrowDown'.")
    return found


def keys_called(names: Iterable[str]) -> str:
    """Return keys that other systems call by these names, joined; raises like `key_called`."""
    return "+".join(map(key_called, names))


_CALLED = {key.lower(): key for key in KEYS} | {
    "ctrl": "Control",
    "option": "Alt",
    "cmd": "Meta",
    "command": "Meta",
    "super": "Meta",
    "win": "Meta",
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "pgup": "PageUp",
    "pgdn": "PageDown",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "print": "PrintScreen",
    "apps": "ContextMenu",
    "menu": "ContextMenu",
    "plus": "+",
}
"""What keys are called elsewhere, in lower case and without underscores."""
