"""PyAutoGUI code, such as `pyautogui.click(320, 40)`, and OSWorld's WAIT, DONE and FAIL.

Sources: https://pyautogui.readthedocs.io; Xie et al. 2024 (OSWorld). Code is parsed, never run.
"""

from __future__ import annotations

from palaestra.core.gesture import Gesture, Kind, Point
from palaestra.core.gestures.dialect_reading import (
    NOTCH,
    Arguments,
    arguments_of,
    python_calls,
    type_of,
    unread,
)
from palaestra.core.gestures.dialect_writing import (
    called,
    cannot,
    notches,
    plainly_typed,
    whole_pixels,
)
from palaestra.core.gestures.key_names import keys_called, split_keys

NAME = "PyAutoGUI"
FORMS = (
    "pyautogui.click(320, 40)",
    "pyautogui.click()",
    "pyautogui.doubleClick(320, 40)",
    "pyautogui.rightClick(320, 40)",
    "pyautogui.moveTo(320, 40)",
    "pyautogui.dragTo(10, 20)",
    "pyautogui.write('text')",
    "pyautogui.press('enter')",
    "pyautogui.hotkey('ctrl', 'a')",
    "pyautogui.scroll(-3)",
    "pyautogui.hscroll(3, x=320, y=40)",
    "time.sleep(2)",
    "DONE",
    "FAIL",
    "WAIT",
)
WORDS = {
    "DONE": Gesture("answer"),
    "FAIL": Gesture("give up"),
    "WAIT": Gesture("wait", amount=(2.0, 0.0)),  # as long as OSWorld pauses between actions
}
CLICKS: dict[str, Kind] = {"click": "click", "doubleClick": "double", "rightClick": "right"}
PARAMETERS = {
    "click": "x y clicks interval button",
    "doubleClick": "x y",
    "rightClick": "x y",
    "moveTo": "x y duration",
    "dragTo": "x y duration button",
    "write": "message interval",
    "typewrite": "message interval",
    "press": "keys presses interval",
    "hotkey": "",
    "scroll": "clicks x y",
    "vscroll": "clicks x y",
    "hscroll": "clicks x y",
    "sleep": "seconds",
}
_NAMES = {
    "Control": "ctrl",
    "Meta": "win",
    "Escape": "esc",
    "ArrowUp": "up",
    "ArrowDown": "down",
    "ArrowLeft": "left",
    "ArrowRight": "right",
    "ContextMenu": "apps",
}


def key_name(key: str) -> str:
    """Return what PyAutoGUI calls a key."""
    return _NAMES.get(key, key.lower() if len(key) > 1 else key)


def read(text: str) -> list[Gesture]:
    """Return the gestures of code of one or several calls; raises InputError for anything else.

    A move of the pointer before a drag is where the drag starts. How long a move or a drag takes is
    passed over.
    """
    if text.strip() in WORDS:
        return [WORDS[text.strip()]]
    found: list[Gesture] = []
    for call in python_calls(NAME, text):
        name = call.name.removeprefix("pyautogui.").removeprefix("time.")
        if name not in PARAMETERS:
            unread(NAME, text, f"'{name}' is none of {', '.join(PARAMETERS)}, {', '.join(WORDS)}")
        if name == "hotkey":
            keys = list(call.positional)
            given = Arguments(NAME, text, {"keys": keys, **call.named})
        else:
            given = arguments_of(NAME, text, call, PARAMETERS[name])
        gesture = _read(name, given)
        given.done()
        if name == "dragTo" and found and found[-1].kind == "hover":
            gesture = Gesture("drag", found.pop().target, gesture.to)
        found.append(gesture)
    return found


def _read(name: str, given: Arguments) -> Gesture:
    match name:
        case "click":
            given.only("interval", 0.0)
            clicks = given.number("clicks", 1)
            button = given.one_of("button", ("left", "right"), "left")
            if clicks not in (1, 2) or (clicks == 2 and button == "right"):
                given.wrong("a gesture clicks once, or twice with the left button")
            kind: Kind = "right" if button == "right" else "double" if clicks == 2 else "click"
            return Gesture(kind, _point(given))
        case "doubleClick" | "rightClick":
            return Gesture(CLICKS[name], _point(given))
        case "moveTo":
            given.number("duration", 0.0)
            return Gesture("hover", given.pixels())
        case "dragTo":
            given.number("duration", 0.0)
            given.only("button", "left")
            return Gesture("drag", None, given.pixels())
        case "write" | "typewrite":
            given.number("interval", 0.0)
            return type_of(given.string("message"))
        case "press":
            given.only("presses", 1)
            given.number("interval", 0.0)
            keys = given.strings("keys")
            if len(keys) != 1:
                given.wrong("keys pressed one after the other are several gestures")
            return Gesture("press", text=keys_called(keys))
        case "hotkey":
            given.number("interval", 0.0)
            return Gesture("press", text=keys_called(given.strings("keys")))
        case "scroll" | "vscroll":
            down = -given.number("clicks") * NOTCH
            return Gesture("scroll", _point(given), amount=(0.0, down))
        case "hscroll":
            right = given.number("clicks") * NOTCH
            return Gesture("scroll", _point(given), amount=(right, 0.0))
        case _:
            return Gesture("wait", amount=(given.number("seconds"), 0.0))


def write(gesture: Gesture) -> str:
    """Return the code of a gesture; raises InputError if there is none."""
    match gesture.kind:
        case "click" | "double" | "right":
            name = next(name for name, kind in CLICKS.items() if kind == gesture.kind)
            return called(f"pyautogui.{name}", *_at(gesture))
        case "hover":
            return called("pyautogui.moveTo", *_at(gesture))
        case "drag":
            end = called("pyautogui.dragTo", *whole_pixels(NAME, gesture, gesture.to))
            if gesture.target is None:
                return end
            return f"{called('pyautogui.moveTo', *_at(gesture))}\n{end}"
        case "type":
            return called("pyautogui.write", plainly_typed(NAME, gesture))
        case "press" if gesture.target is None:
            keys = [key_name(key) for key in split_keys(gesture.text)]
            return called("pyautogui.hotkey" if len(keys) > 1 else "pyautogui.press", *keys)
        case "scroll":
            right, down = notches(NAME, gesture)
            if right and down:
                cannot(NAME, gesture, "it scrolls along one axis")
            at = dict(zip("xy", _at(gesture), strict=False))
            if right:
                return called("pyautogui.hscroll", right, **at)
            return called("pyautogui.scroll", -down, **at)
        case "wait":
            return called("time.sleep", float(gesture.amount[0]))
        case "answer" | "give up" if not gesture.text:
            return "DONE" if gesture.kind == "answer" else "FAIL"
        case _:
            cannot(NAME, gesture, "it has the mouse, the keyboard, and DONE and FAIL without words")


def _point(given: Arguments) -> Point | None:
    if given.left.get("x") is None and given.left.get("y") is None:
        given.left.pop("x", None), given.left.pop("y", None)
        return None
    return given.pixels()


def _at(gesture: Gesture) -> tuple[int, ...]:
    return () if gesture.target is None else whole_pixels(NAME, gesture, gesture.target)
