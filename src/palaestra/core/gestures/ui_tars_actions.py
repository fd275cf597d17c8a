"""UI-TARS' actions: calls whose points are thousandths of the picture's width and height.

Source: Qin et al. 2025, https://github.com/bytedance/UI-TARS (the prompts for computers and for
phones). Its wait takes five seconds. A thought before `Action:` is passed over.
"""

from __future__ import annotations

import re

from palaestra.core.gesture import Gesture, Kind, Point, Target
from palaestra.core.gestures.dialect_reading import (
    PAGES,
    Arguments,
    arguments_of,
    python_calls,
    type_of,
    unread,
)
from palaestra.core.gestures.dialect_writing import called, cannot, page_direction, plainly_typed
from palaestra.core.gestures.key_names import keys_called, split_keys
from palaestra.core.gestures.pyautogui_code import key_name

NAME = "UI-TARS"
FORMS = (
    "click(start_box='(500,250)')",
    "left_double(start_box='(500,250)')",
    "right_single(start_box='(500,250)')",
    "long_press(start_box='(500,250)')",
    "drag(start_box='(500,250)', end_box='(100,250)')",
    "scroll(start_box='(500,250)', direction='down')",
    "type(content='text\\n')",
    "hotkey(key='ctrl a')",
    "wait()",
    "press_back()",
    "press_home()",
    "open_app(app_name='Clock')",
    "finished(content='the answer')",
    "call_user()",
)
WAIT = 5.0  # seconds
CLICKS: dict[str, Kind] = {
    "click": "click",
    "left_double": "double",
    "right_single": "right",
    "long_press": "right",
}
PARAMETERS = {
    **dict.fromkeys(CLICKS, "start_box"),
    "drag": "start_box end_box",
    "scroll": "start_box direction",
    "type": "content",
    "hotkey": "key",
    "wait": "",
    "press_back": "",
    "press_home": "",
    "open_app": "app_name",
    "finished": "content",
    "call_user": "",
}


def read(text: str) -> list[Gesture]:
    """Return the gestures of one or several calls; raises InputError for anything else."""
    found = []
    for call in python_calls(NAME, text.rpartition("Action:")[2] or text):
        if call.name not in PARAMETERS:
            unread(NAME, text, f"'{call.name}' is none of {', '.join(PARAMETERS)}")
        # Later versions say `point` where earlier ones said `start_box`.
        named = {
            "start_box" if name == "point" else name.replace("_point", "_box"): value
            for name, value in call.named.items()
        }
        call = type(call)(call.name, call.positional, named)
        given = arguments_of(NAME, text, call, PARAMETERS[call.name])
        found.append(_read(call.name, given))
        given.done()
    return found


def _read(name: str, given: Arguments) -> Gesture:
    match name:
        case "drag":
            return Gesture("drag", _point(given, "start_box"), _point(given, "end_box"))
        case "scroll":
            amount = PAGES[given.one_of("direction", PAGES)]
            return Gesture("scroll", _point(given, "start_box"), amount=amount, unit="pages")
        case "type":
            return type_of(given.string("content"))
        case "hotkey":
            return Gesture("press", text=keys_called(given.string("key").split()))
        case "wait":
            return Gesture("wait", amount=(WAIT, 0.0))
        case "press_back":
            return Gesture("back")
        case "press_home":
            return Gesture("home")
        case "open_app":
            return Gesture("open", text=given.string("app_name"))
        case "finished":
            return Gesture("answer", text=given.string("content", ""))
        case "call_user":
            return Gesture("give up")
        case _:
            return Gesture(CLICKS[name], _point(given, "start_box"))


def write(gesture: Gesture) -> str:
    """Return the call of a gesture; raises InputError if there is none."""
    target, text = gesture.target, gesture.text
    match gesture.kind:
        case "click" | "double" | "right":
            name = next(name for name, kind in CLICKS.items() if kind == gesture.kind)
            return called(name, start_box=_box(gesture, target))
        case "drag":
            start, end = _box(gesture, target), _box(gesture, gesture.to)
            return called("drag", start_box=start, end_box=end)
        case "scroll":
            direction = page_direction(NAME, gesture)
            return called("scroll", start_box=_box(gesture, target), direction=direction)
        case "type":
            return called("type", content=plainly_typed(NAME, gesture))
        case "press" if target is None:
            return called("hotkey", key=" ".join(map(key_name, split_keys(text))))
        case "back" | "home":
            return called(f"press_{gesture.kind}")
        case "open":
            return called("open_app", app_name=text)
        case "answer":
            return called("finished", content=text)
        case "give up" if not text:
            return called("call_user")
        case "wait" if gesture.amount[0] == WAIT:
            return called("wait")
        case "wait":
            cannot(NAME, gesture, f"it waits {WAIT:.0f} seconds")
        case _:
            cannot(NAME, gesture, f"its actions are {', '.join(PARAMETERS)}")


def _point(given: Arguments, name: str) -> Point:
    """Take a point, or the centre of a box: `(x,y)`, `[x, y, x, y]`, with or without tags."""
    text = given.string(name)
    found = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
    if len(found) not in (2, 4):
        given.wrong(f"'{name}' is '{text}', not a point such as '(500,250)'")
    x, y = found if len(found) == 2 else ((found[0] + found[2]) / 2, (found[1] + found[3]) / 2)
    return Point(x / 1000, y / 1000, "shares")


def _box(gesture: Gesture, target: Target | None) -> str:
    if not isinstance(target, Point) or target.unit != "shares":
        cannot(NAME, gesture, "its targets are points in shares of the picture")
    return f"({round(target.x * 1000)},{round(target.y * 1000)})"
