"""The actions of Anthropic's computer tool, as JSON: `{"action": "left_click", "coordinate": …}`.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/computer-use-tool (the tools
`computer_20241022` and `computer_20250124`). A screenshot is a wait of no length.
"""

from __future__ import annotations

from typing import Any

from palaestra.core.gesture import Gesture, Kind, Point, Target
from palaestra.core.gestures.dialect_reading import (
    NOTCH,
    PAGES,
    Arguments,
    json_arguments,
    type_of,
    unread,
)
from palaestra.core.gestures.dialect_writing import (
    cannot,
    json_text,
    notches,
    plainly_typed,
    whole_pixels,
)
from palaestra.core.gestures.key_names import keys_called, split_keys

NAME = "Anthropic's computer tool"
FORMS = (
    '{"action": "left_click", "coordinate": [320, 40]}',
    '{"action": "double_click", "coordinate": [320, 40]}',
    '{"action": "right_click", "coordinate": [320, 40]}',
    '{"action": "mouse_move", "coordinate": [320, 40]}',
    '{"action": "left_click_drag", "start_coordinate": [320, 40], "coordinate": [10, 20]}',
    '{"action": "scroll", "coordinate": [320, 40], "scroll_direction": "down", "scroll_amount": 3}',
    '{"action": "type", "text": "text"}',
    '{"action": "key", "text": "ctrl+a"}',
    '{"action": "wait", "duration": 2}',
    '{"action": "screenshot"}',
)
CLICKS: dict[str, Kind] = {
    "left_click": "click",
    "double_click": "double",
    "right_click": "right",
    "mouse_move": "hover",
}
_NAMES = {
    "Control": "ctrl",
    "Shift": "shift",
    "Alt": "alt",
    "Meta": "super",
    "Enter": "Return",
    "Backspace": "BackSpace",
    "PageUp": "Page_Up",
    "PageDown": "Page_Down",
    "ArrowUp": "Up",
    "ArrowDown": "Down",
    "ArrowLeft": "Left",
    "ArrowRight": "Right",
    "CapsLock": "Caps_Lock",
    "PrintScreen": "Print",
    "ContextMenu": "Menu",
    "Space": "space",
    "+": "plus",
}
"""What xdotool calls keys, whose names the tool takes."""


def read(text: str) -> list[Gesture]:
    """Return the one gesture of an action; raises InputError for anything else."""
    given = json_arguments(NAME, text)
    gesture = _read(given.string("action"), given)
    given.done()
    return [gesture]


def _read(action: str, given: Arguments) -> Gesture:
    match action:
        case "left_click" | "double_click" | "right_click" | "mouse_move":
            return Gesture(CLICKS[action], _point(given, "coordinate"))
        case "left_click_drag":
            start = _point(given, "start_coordinate")
            return Gesture("drag", start, Point(*given.pair("coordinate")))
        case "scroll":
            right, down = PAGES[given.one_of("scroll_direction", PAGES)]
            by = given.number("scroll_amount") * NOTCH
            point = _point(given, "coordinate")
            return Gesture("scroll", point, amount=(right * by, down * by))
        case "type":
            return type_of(given.string("text"))
        case "key":
            return Gesture("press", text=keys_called(split_keys(given.string("text"))))
        case "wait":
            return Gesture("wait", amount=(given.number("duration"), 0.0))
        case "screenshot":
            return Gesture("wait")
        case _:
            unread(NAME, given.text, f"'{action}' is not an action such as {'; '.join(FORMS[:3])}")


def write(gesture: Gesture) -> str:
    """Return the action of a gesture; raises InputError if there is none."""
    target = gesture.target
    match gesture.kind:
        case "click" | "double" | "right" | "hover":
            action = next(name for name, kind in CLICKS.items() if kind == gesture.kind)
            return json_text({"action": action, **_at(gesture, "coordinate", target)})
        case "drag":
            start = _at(gesture, "start_coordinate", target)
            end = _at(gesture, "coordinate", gesture.to)
            return json_text({"action": "left_click_drag", **start, **end})
        case "scroll":
            right, down = notches(NAME, gesture)
            if right and down:
                cannot(NAME, gesture, "it scrolls along one axis")
            way = ("right" if right > 0 else "left") if right else "down" if down > 0 else "up"
            by = {"scroll_direction": way, "scroll_amount": abs(right or down)}
            return json_text({"action": "scroll", **_at(gesture, "coordinate", target), **by})
        case "type":
            return json_text({"action": "type", "text": plainly_typed(NAME, gesture)})
        case "press" if target is None:
            keys = [_NAMES.get(key, key) for key in split_keys(gesture.text)]
            return json_text({"action": "key", "text": "+".join(keys)})
        case "wait":
            seconds = gesture.amount[0]
            wait: dict[str, Any] = {"action": "wait", "duration": seconds}
            return json_text(wait if seconds else {"action": "screenshot"})
        case _:
            cannot(NAME, gesture, "it has only the mouse and the keyboard")


def _point(given: Arguments, name: str) -> Point | None:
    return Point(*given.pair(name)) if given.has(name) else None


def _at(gesture: Gesture, name: str, target: Target | None) -> dict[str, list[int]]:
    return {} if target is None else {name: list(whole_pixels(NAME, gesture, target))}
