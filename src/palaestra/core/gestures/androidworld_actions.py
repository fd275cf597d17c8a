"""AndroidWorld's actions, as JSON: `{"action_type": "click", "index": 3}`.

Source: Rawles et al. 2025, https://github.com/google-research/android_world. An index is the number
that the agent sees on an element. Its `answer` tells the user something and does not end the
episode, its `status` does; entering a text ends with Enter; its wait takes one second.
"""

from __future__ import annotations

from typing import Any

from palaestra.core.gesture import Gesture, Kind, Mark, Target
from palaestra.core.gestures.dialect_reading import PAGES, Arguments, json_arguments, unread
from palaestra.core.gestures.dialect_writing import cannot, json_text, page_direction, whole_pixels

NAME = "AndroidWorld"
FORMS = (
    '{"action_type": "click", "index": 3}',
    '{"action_type": "click", "x": 320, "y": 40}',
    '{"action_type": "double_tap", "index": 3}',
    '{"action_type": "long_press", "index": 3}',
    '{"action_type": "input_text", "index": 3, "text": "text", "clear_text": true}',
    '{"action_type": "keyboard_enter"}',
    '{"action_type": "scroll", "direction": "down"}',
    '{"action_type": "navigate_back"}',
    '{"action_type": "navigate_home"}',
    '{"action_type": "open_app", "app_name": "Clock"}',
    '{"action_type": "wait"}',
    '{"action_type": "answer", "text": "the answer"}',
    '{"action_type": "status", "goal_status": "complete"}',
    '{"action_type": "status", "goal_status": "infeasible"}',
)
WAIT = 1.0  # seconds
CLICKS: dict[str, Kind] = {"click": "click", "double_tap": "double", "long_press": "right"}
ENDS = {"complete": Gesture("answer"), "infeasible": Gesture("give up")}


def read(text: str) -> list[Gesture]:
    """Return the one gesture of an action; raises InputError for anything else."""
    given = json_arguments(NAME, text)
    gesture = _read(given.string("action_type"), given)
    given.done()
    return [gesture]


def _read(action: str, given: Arguments) -> Gesture:
    match action:
        case "click" | "double_tap" | "long_press":
            return Gesture(CLICKS[action], _target(given))
        case "input_text":
            text, clear = given.string("text"), given.flag("clear_text")
            return Gesture("type", _target(given), text=text, clear=clear, enter=True)
        case "keyboard_enter":
            return Gesture("press", text="Enter")
        case "scroll":
            target = Mark(int(given.number("index"))) if given.has("index") else None
            amount = PAGES[given.one_of("direction", PAGES)]
            return Gesture("scroll", target, amount=amount, unit="pages")
        case "navigate_back":
            return Gesture("back")
        case "navigate_home":
            return Gesture("home")
        case "open_app":
            return Gesture("open", text=given.string("app_name"))
        case "wait":
            return Gesture("wait", amount=(WAIT, 0.0))
        case "answer":
            return Gesture("say", text=given.string("text"))
        case "status":
            return ENDS[given.one_of("goal_status", ENDS)]
        case _:
            unread(NAME, given.text, f"'{action}' is not an action such as {'; '.join(FORMS[:3])}")


def write(gesture: Gesture) -> str:
    """Return the action of a gesture; raises InputError if there is none."""
    text = gesture.text
    match gesture.kind:
        case "click" | "double" | "right":
            action = next(name for name, kind in CLICKS.items() if kind == gesture.kind)
            return _action(action, **_at(gesture, gesture.target))
        case "type":
            if not gesture.enter or not text:
                cannot(NAME, gesture, "it enters a text and then presses Enter")
            clear = {"clear_text": True} if gesture.clear else {}
            return _action("input_text", **_at(gesture, gesture.target), text=text, **clear)
        case "press" if text == "Enter" and gesture.target is None:
            return _action("keyboard_enter")
        case "scroll":
            if isinstance(gesture.target, Mark):
                return _scroll(gesture, index=gesture.target.number)
            if gesture.target is not None:
                cannot(NAME, gesture, "it scrolls the screen or an element by its mark")
            return _scroll(gesture)
        case "back" | "home":
            return _action(f"navigate_{gesture.kind}")
        case "open":
            return _action("open_app", app_name=text)
        case "wait" if gesture.amount[0] == WAIT:
            return _action("wait")
        case "say":
            return _action("answer", text=text)
        case "answer" | "give up" if not text:
            status = next(status for status, end in ENDS.items() if end == gesture)
            return _action("status", goal_status=status)
        case "answer":
            cannot(NAME, gesture, "it ends without words; `say` the answer before")
        case _:
            cannot(NAME, gesture, f"its actions are {'; '.join(FORMS)}")


def _action(action_type: str, **members: Any) -> str:
    return json_text({"action_type": action_type, **members})


def _scroll(gesture: Gesture, **at: int) -> str:
    return _action("scroll", direction=page_direction(NAME, gesture), **at)


def _target(given: Arguments) -> Target:
    return Mark(int(given.number("index"))) if given.has("index") else given.pixels()


def _at(gesture: Gesture, target: Target | None) -> dict[str, int]:
    if isinstance(target, Mark):
        return {"index": target.number}
    x, y = whole_pixels(NAME, gesture, target)
    return {"x": x, "y": y}
