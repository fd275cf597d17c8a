"""The actions of Android in the Wild, as JSON: `{"action_type": "DUAL_POINT", …}`.

Source: Rawles et al. 2023 (AITW); as text in Zhang and Zhang 2023 (Auto-UI) and Bai et al. 2024
(DigiRL). Points are (y, x) in shares of the screen. A touch that is lifted within 0.04 of where it
began is a tap, any other a swipe.
"""

from __future__ import annotations

import math
from typing import Any

from palaestra.core.gesture import Gesture, Point, Target
from palaestra.core.gestures.dialect_reading import Arguments, json_arguments, unread
from palaestra.core.gestures.dialect_writing import cannot, json_text

NAME = "AITW"
FORMS = (
    '{"action_type": "DUAL_POINT", "touch_point": [0.1, 0.5], "lift_point": [0.1, 0.5]}',
    '{"action_type": "DUAL_POINT", "touch_point": [0.8, 0.5], "lift_point": [0.2, 0.5]}',
    '{"action_type": "TYPE", "typed_text": "text"}',
    '{"action_type": "PRESS_BACK"}',
    '{"action_type": "PRESS_HOME"}',
    '{"action_type": "PRESS_ENTER"}',
    '{"action_type": "STATUS_TASK_COMPLETE"}',
    '{"action_type": "STATUS_TASK_IMPOSSIBLE"}',
)
TAP = 0.04  # the furthest that a tap moves, in shares of the screen
WITHOUT = {
    "PRESS_BACK": Gesture("back"),
    "PRESS_HOME": Gesture("home"),
    "PRESS_ENTER": Gesture("press", text="Enter"),
    "STATUS_TASK_COMPLETE": Gesture("answer"),
    "STATUS_TASK_IMPOSSIBLE": Gesture("give up"),
}


def read(text: str) -> list[Gesture]:
    """Return the one gesture of an action; raises InputError for anything else."""
    given = json_arguments(NAME, text)
    action = given.string("action_type")
    gesture = _read(action, given)
    # Auto-UI writes all members always; those that an action does not use are empty.
    given.only("typed_text", "")
    given.only("touch_point", [-1.0, -1.0])
    given.only("lift_point", [-1.0, -1.0])
    given.done()
    return [gesture]


def _read(action: str, given: Arguments) -> Gesture:
    if action in WITHOUT:
        return WITHOUT[action]
    if action == "TYPE":
        return Gesture("type", text=given.string("typed_text"))
    if action == "DUAL_POINT":
        touch, lift = _point(given, "touch_point"), _point(given, "lift_point")
        return Gesture("click", touch) if _is_tap(touch, lift) else Gesture("drag", touch, lift)
    unread(NAME, given.text, f"'{action}' is none of DUAL_POINT, TYPE, {', '.join(WITHOUT)}")


def write(gesture: Gesture) -> str:
    """Return the action of a gesture; raises InputError if there is none."""
    for action, meant in WITHOUT.items():
        if gesture == meant:
            return json_text({"action_type": action})
    match gesture.kind:
        case "click":
            at = _pair(gesture, gesture.target)
            return json_text({"action_type": "DUAL_POINT", "touch_point": at, "lift_point": at})
        case "drag":
            touch, lift = _pair(gesture, gesture.target), _pair(gesture, gesture.to)
            if _is_tap(Point(*touch), Point(*lift)):
                cannot(NAME, gesture, f"a drag of less than {TAP} of the screen is a tap")
            return json_text(
                {"action_type": "DUAL_POINT", "touch_point": touch, "lift_point": lift}
            )
        case "type" if gesture.target is None and gesture.text:
            if gesture.enter or gesture.clear:
                cannot(NAME, gesture, "it only types; press 'Enter' in an action of its own")
            return json_text({"action_type": "TYPE", "typed_text": gesture.text})
        case _:
            cannot(NAME, gesture, f"its actions are DUAL_POINT, TYPE, {', '.join(WITHOUT)}")


def _is_tap(touch: Point, lift: Point) -> bool:
    return math.dist((touch.x, touch.y), (lift.x, lift.y)) <= TAP


def _point(given: Arguments, name: str) -> Point:
    y, x = given.pair(name)
    return Point(x, y, "shares")


def _pair(gesture: Gesture, target: Target | None) -> tuple[Any, Any]:
    if not isinstance(target, Point) or target.unit != "shares":
        cannot(NAME, gesture, "its targets are points in shares of the screen")
    return target.y, target.x
