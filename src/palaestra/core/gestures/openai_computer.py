"""The actions of OpenAI's computer-use tool, as JSON: `{"type": "click", "x": 320, "y": 40, …}`.

Source: https://platform.openai.com/docs/guides/tools-computer-use. Its wait has no length; it is
read as the two seconds of the guide's example. A screenshot is a wait of no length.
"""

from __future__ import annotations

from palaestra.core.gesture import Gesture, Kind, Point
from palaestra.core.gestures.dialect_reading import Arguments, json_arguments, type_of, unread
from palaestra.core.gestures.dialect_writing import cannot, json_text, plainly_typed, whole_pixels
from palaestra.core.gestures.key_names import keys_called, split_keys

NAME = "OpenAI's computer tool"
FORMS = (
    '{"type": "click", "button": "left", "x": 320, "y": 40}',
    '{"type": "double_click", "x": 320, "y": 40}',
    '{"type": "move", "x": 320, "y": 40}',
    '{"type": "drag", "path": [{"x": 320, "y": 40}, {"x": 10, "y": 20}]}',
    '{"type": "scroll", "x": 320, "y": 40, "scroll_x": 0, "scroll_y": 300}',
    '{"type": "type", "text": "text"}',
    '{"type": "keypress", "keys": ["CTRL", "a"]}',
    '{"type": "wait"}',
    '{"type": "screenshot"}',
)
WAIT = 2.0  # seconds
BUTTONS: dict[str, Kind] = {"left": "click", "right": "right", "back": "back", "forward": "forward"}
_NAMES = {"Control": "CTRL", "Meta": "WIN", "Escape": "ESC"}


def key_name(key: str) -> str:
    """Return what the tool calls a key."""
    return _NAMES.get(key, key.upper() if len(key) > 1 else key)


def read(text: str) -> list[Gesture]:
    """Return the one gesture of an action; raises InputError for anything else."""
    given = json_arguments(NAME, text)
    gesture = _read(given.string("type"), given)
    given.done()
    return [gesture]


def _read(kind: str, given: Arguments) -> Gesture:
    match kind:
        case "click":
            button, point = given.one_of("button", BUTTONS, "left"), given.pixels()
            # The buttons at the side of a mouse turn pages, wherever the pointer is.
            return Gesture(BUTTONS[button], None if button in ("back", "forward") else point)
        case "double_click":
            return Gesture("double", given.pixels())
        case "move":
            return Gesture("hover", given.pixels())
        case "drag":
            path = given.left.pop("path", None)
            if not isinstance(path, list) or len(path) != 2:
                given.wrong("'path' is not its start and its end; a gesture drags straight")
            return Gesture("drag", _stop(given, path[0]), _stop(given, path[1]))
        case "scroll":
            point = given.pixels()
            amount = given.number("scroll_x"), given.number("scroll_y")
            return Gesture("scroll", point, amount=amount)
        case "type":
            return type_of(given.string("text"))
        case "keypress":
            return Gesture("press", text=keys_called(given.strings("keys")))
        case "wait" | "screenshot":
            return Gesture("wait", amount=(WAIT if kind == "wait" else 0.0, 0.0))
        case _:
            unread(NAME, given.text, f"'{kind}' is not a type such as {'; '.join(FORMS[:3])}")


def write(gesture: Gesture) -> str:
    """Return the action of a gesture; raises InputError if there is none."""
    match gesture.kind:
        case "click" | "right":
            button = "left" if gesture.kind == "click" else "right"
            return json_text({"type": "click", "button": button, **_at(gesture, gesture.target)})
        case "back" | "forward":
            return json_text({"type": "click", "button": gesture.kind, "x": 0, "y": 0})
        case "double":
            return json_text({"type": "double_click", **_at(gesture, gesture.target)})
        case "hover":
            return json_text({"type": "move", **_at(gesture, gesture.target)})
        case "drag":
            path = [_at(gesture, gesture.target), _at(gesture, gesture.to)]
            return json_text({"type": "drag", "path": path})
        case "scroll":
            right, down = gesture.amount
            if gesture.unit != "pixels" or right % 1 or down % 1:
                cannot(NAME, gesture, "it scrolls by whole pixels")
            by = {"scroll_x": int(right), "scroll_y": int(down)}
            return json_text({"type": "scroll", **_at(gesture, gesture.target), **by})
        case "type":
            return json_text({"type": "type", "text": plainly_typed(NAME, gesture)})
        case "press" if gesture.target is None:
            keys = [key_name(key) for key in split_keys(gesture.text)]
            return json_text({"type": "keypress", "keys": keys})
        case "wait" if gesture.amount[0] in (0, WAIT):
            return json_text({"type": "wait" if gesture.amount[0] else "screenshot"})
        case "wait":
            cannot(NAME, gesture, f"it waits {WAIT:.0f} seconds or none")
        case _:
            cannot(NAME, gesture, "it has only the mouse and the keyboard")


def _stop(given: Arguments, stop: object) -> Point:
    if not isinstance(stop, dict):
        given.wrong(f"'path' holds {stop!r:.40}, not a point")
    inner = Arguments(given.dialect, given.text, stop)
    point = inner.pixels()
    inner.done()
    return point


def _at(gesture: Gesture, target: object) -> dict[str, int]:
    x, y = whole_pixels(NAME, gesture, target)  # type: ignore[arg-type]
    return {"x": x, "y": y}
