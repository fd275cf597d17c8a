"""BrowserGym's actions: calls in Python's syntax, such as `click('a12')`.

Source: de Chezelles et al. 2024, https://github.com/ServiceNow/BrowserGym. A message to the user is
the answer that its benchmarks score, so it is read as one.
"""

from __future__ import annotations

from palaestra.core.gesture import Gesture, Id, Kind, Point, Target
from palaestra.core.gestures.dialect_reading import (
    Arguments,
    arguments_of,
    python_calls,
    type_of,
    unread,
)
from palaestra.core.gestures.dialect_writing import called, cannot, plainly_typed
from palaestra.core.gestures.key_names import keys_called, split_keys

NAME = "BrowserGym"
FORMS = (
    "click('a12')",
    "click('a12', button='right')",
    "dblclick('a12')",
    "hover('a12')",
    "fill('a12', 'text')",
    "clear('a12')",
    "press('a12', 'Control+a')",
    "select_option('a12', 'Red')",
    "drag_and_drop('a12', 'a13')",
    "upload_file('a12', 'cv.pdf')",
    "scroll(0, 300)",
    "mouse_click(320, 40)",
    "mouse_click(320, 40, button='right')",
    "mouse_dblclick(320, 40)",
    "mouse_move(320, 40)",
    "mouse_drag_and_drop(320, 40, 10, 20)",
    "keyboard_type('text')",
    "keyboard_press('Enter')",
    "goto('http://shop/')",
    "go_back()",
    "go_forward()",
    "new_tab()",
    "tab_close()",
    "tab_focus(1)",
    "noop(1000)",
    "send_msg_to_user('the answer')",
    "report_infeasible('the reason')",
)
PARAMETERS = {
    "click": "bid button modifiers",
    "dblclick": "bid button modifiers",
    "hover": "bid",
    "fill": "bid value enable_autocomplete_menu",
    "clear": "bid",
    "press": "bid key_comb",
    "select_option": "bid options",
    "drag_and_drop": "from_bid to_bid",
    "upload_file": "bid file",
    "scroll": "delta_x delta_y",
    "mouse_click": "x y button",
    "mouse_dblclick": "x y button",
    "mouse_move": "x y",
    "mouse_drag_and_drop": "from_x from_y to_x to_y",
    "keyboard_type": "text",
    "keyboard_insert_text": "text",
    "keyboard_press": "key",
    "goto": "url",
    "go_back": "",
    "go_forward": "",
    "new_tab": "",
    "tab_close": "",
    "tab_focus": "index",
    "noop": "wait_ms",
    "send_msg_to_user": "text",
    "report_infeasible": "reason",
}
CLICKS: dict[str, Kind] = {"left": "click", "right": "right"}


def read(text: str) -> list[Gesture]:
    """Return the gestures of one or several calls; raises InputError for anything else."""
    found = []
    for call in python_calls(NAME, text):
        if call.name not in PARAMETERS:
            unread(NAME, text, f"'{call.name}' is none of {', '.join(PARAMETERS)}")
        arguments = arguments_of(NAME, text, call, PARAMETERS[call.name])
        found.append(_read(call.name, arguments))
        arguments.done()
    return found


def _read(name: str, given: Arguments) -> Gesture:
    match name:
        case "click":
            given.only("modifiers", [])
            return Gesture(CLICKS[given.one_of("button", CLICKS, "left")], _bid(given))
        case "dblclick":
            given.only("modifiers", [])
            given.only("button", "left")
            return Gesture("double", _bid(given))
        case "hover":
            return Gesture("hover", _bid(given))
        case "fill":
            given.only("enable_autocomplete_menu", False)
            return Gesture("type", _bid(given), text=given.string("value"), clear=True)
        case "clear":
            return Gesture("type", _bid(given), clear=True)
        case "press":
            return Gesture("press", _bid(given), text=_keys(given.string("key_comb")))
        case "select_option":
            return Gesture("select", _bid(given), text=_single(given, "options"))
        case "upload_file":
            return Gesture("upload", _bid(given), text=_single(given, "file"))
        case "drag_and_drop":
            return Gesture("drag", _bid(given, "from_bid"), _bid(given, "to_bid"))
        case "scroll":
            return Gesture("scroll", amount=(given.number("delta_x"), given.number("delta_y")))
        case "mouse_click":
            return Gesture(CLICKS[given.one_of("button", CLICKS, "left")], given.pixels())
        case "mouse_dblclick":
            given.only("button", "left")
            return Gesture("double", given.pixels())
        case "mouse_move":
            return Gesture("hover", given.pixels())
        case "mouse_drag_and_drop":
            return Gesture("drag", given.pixels("from_x", "from_y"), given.pixels("to_x", "to_y"))
        case "keyboard_type" | "keyboard_insert_text":
            return type_of(given.string("text"))
        case "keyboard_press":
            return Gesture("press", text=_keys(given.string("key")))
        case "goto":
            return Gesture("go", text=given.string("url"))
        case "go_back":
            return Gesture("back")
        case "go_forward":
            return Gesture("forward")
        case "new_tab":
            return Gesture("tab", text="new")
        case "tab_close":
            return Gesture("tab", text="close")
        case "tab_focus":
            return Gesture("tab", text=str(int(given.number("index"))))
        case "noop":
            return Gesture("wait", amount=(given.number("wait_ms", 1000) / 1000, 0.0))
        case "send_msg_to_user":
            return Gesture("answer", text=given.string("text"))
        case _:
            return Gesture("give up", text=given.string("reason"))


def write(gesture: Gesture) -> str:
    """Return the call of a gesture; raises InputError if there is none."""
    target, text = gesture.target, gesture.text
    match gesture.kind:
        case "click":
            return _pointed(gesture, "click", "mouse_click")
        case "right":
            return _pointed(gesture, "click", "mouse_click", button="right")
        case "double":
            return _pointed(gesture, "dblclick", "mouse_dblclick")
        case "hover":
            return _pointed(gesture, "hover", "mouse_move")
        case "type" if isinstance(target, Id):
            if gesture.enter or not gesture.clear:
                cannot(NAME, gesture, "it fills a field in place of what is there, without Enter")
            return called("fill", target.id, text) if text else called("clear", target.id)
        case "type":
            return called("keyboard_type", plainly_typed(NAME, gesture))
        case "press" if target is None:
            return called("keyboard_press", text)
        case "press":
            return called("press", _id(gesture, target), text)
        case "select":
            return called("select_option", _id(gesture, target), text)
        case "upload":
            return called("upload_file", _id(gesture, target), text)
        case "drag":
            return _dragged(gesture)
        case "scroll":
            if target is not None or gesture.unit != "pixels":
                cannot(NAME, gesture, "it scrolls the page by pixels")
            return called("scroll", *map(float, gesture.amount))
        case "go":
            return called("goto", text)
        case "back" | "forward":
            return called(f"go_{gesture.kind}")
        case "tab" if text in ("new", "close"):
            return "new_tab()" if text == "new" else "tab_close()"
        case "tab":
            return called("tab_focus", int(text))
        case "wait":
            return called("noop", round(gesture.amount[0] * 1000))
        case "answer":
            return called("send_msg_to_user", text)
        case "give up":
            return called("report_infeasible", text)
        case "say":
            cannot(NAME, gesture, "a message to the user is its answer; write `answer`")
        case _:
            cannot(NAME, gesture, "it is for web pages")


def _bid(given: Arguments, name: str = "bid") -> Id:
    return Id(given.string(name))


def _keys(text: str) -> str:
    return keys_called(split_keys(text))


def _single(given: Arguments, name: str) -> str:
    found = given.strings(name)
    if len(found) != 1:
        given.wrong(f"'{name}' has {len(found)} entries; a gesture has one")
    return found[0]


def _id(gesture: Gesture, target: Target | None) -> str:
    if not isinstance(target, Id):
        cannot(NAME, gesture, "its targets are ids and points in pixels")
    return target.id


def _pointed(gesture: Gesture, by_id: str, by_point: str, **named: str) -> str:
    target = gesture.target
    if isinstance(target, Point) and target.unit == "pixels":
        return called(by_point, float(target.x), float(target.y), **named)
    return called(by_id, _id(gesture, target), **named)


def _dragged(gesture: Gesture) -> str:
    start, end = gesture.target, gesture.to
    if isinstance(start, Id) and isinstance(end, Id):
        return called("drag_and_drop", start.id, end.id)
    points = [one for one in (start, end) if isinstance(one, Point) and one.unit == "pixels"]
    if len(points) < 2:
        cannot(NAME, gesture, "it drags between two ids or two points in pixels")
    return called("mouse_drag_and_drop", *(float(c) for one in points for c in (one.x, one.y)))
