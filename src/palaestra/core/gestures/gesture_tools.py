"""Gestures as calls of tools, one tool for each kind, and back.

An environment offers those of `TOOLS` that it can do. A target is written as in a line (`[12]`,
`#3`, `(320, 40)`, `'the Buy button'`); text of any other form is taken as an element's id.
"""

from __future__ import annotations

from typing import Any

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.gesture import USES, Gesture, Id, Kind, Target
from palaestra.core.gestures.dialects import translated
from palaestra.core.gestures.gesture_line import read_line, read_target, write_target
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, checked

_DESCRIBED: dict[Kind, str] = {
    "click": "Click an element or a point.",
    "double": "Click twice on an element or a point.",
    "right": "Click with the right button, or press long, on an element or a point.",
    "hover": "Move the pointer to an element or a point.",
    "type": "Type a text into a field, or where the focus is; `clear` empties the field before, "
    "`enter` presses Enter after.",
    "press": "Press a key or several together, such as Enter, ArrowDown, Control+a.",
    "scroll": "Scroll to the right and down; negative numbers scroll to the left and up.",
    "drag": "Drag from an element or a point, or from where the pointer is, to another.",
    "select": "Select an option of a list by its label.",
    "upload": "Choose a file in a file field.",
    "go": "Go to an address.",
    "back": "Go back to the page or screen before.",
    "forward": "Go forward to the page after.",
    "home": "Go to the home screen.",
    "open": "Open an application by its name.",
    "tab": "Change to the tab with that number from 0; `new` opens one, `close` closes this one.",
    "wait": "Wait.",
    "say": "Say something to the user.",
    "answer": "End the task; give the answer if it asks for one.",
    "give up": "End the task because it is impossible; say why.",
}
_TEXTS: dict[Kind, str] = {
    "press": "keys",
    "select": "option",
    "upload": "path",
    "go": "address",
    "open": "application",
    "tab": "tab",
    "give up": "reason",
}
"""What the text of a gesture is called as an argument; `text` for all others."""

_TARGET = {
    "type": "string",
    "description": "an element's id as [12], its mark as #3, a point in pixels as (320, 40) or in "
    "shares of width and height as (0.5, 0.1), or words in quotes",
}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "target": _TARGET,
    "to": _TARGET,
    "text": {"type": "string"},
    "right": {"type": "number"},
    "down": {"type": "number"},
    "unit": {"type": "string", "enum": ["pixels", "pages"]},
    "seconds": {"type": "number", "minimum": 0},
    "enter": {"type": "boolean"},
    "clear": {"type": "boolean"},
}


def _tool(kind: Kind) -> Tool:
    needed, optional = USES[kind]
    properties: dict[str, Any] = {}
    for name in (*needed, *optional):
        if name == "amount":
            names = ("seconds",) if kind == "wait" else ("right", "down")
            properties |= {each: _SCHEMAS[each] for each in names}
        else:
            properties[_TEXTS.get(kind, name) if name == "text" else name] = _SCHEMAS[name]
    required = [_TEXTS.get(kind, name) if name == "text" else name for name in needed]
    return Tool(
        kind.replace(" ", "_"),
        _DESCRIBED[kind],
        {
            "type": "object",
            "properties": properties,
            "required": [name for name in required if name != "amount"],
        },
    )


TOOLS: dict[Kind, Tool] = {kind: _tool(kind) for kind in _DESCRIBED}
"""The tool of each kind of gesture."""


def call_of(gesture: Gesture) -> ToolCall:
    """Return a gesture as a call of its tool."""
    arguments: dict[str, Any] = {}
    if gesture.target is not None:
        arguments["target"] = write_target(gesture.target)
    if gesture.to is not None:
        arguments["to"] = write_target(gesture.to)
    if gesture.text:
        arguments[_TEXTS.get(gesture.kind, "text")] = gesture.text
    if gesture.kind == "wait":
        arguments["seconds"] = gesture.amount[0]
    elif gesture.kind == "scroll":
        arguments |= {"right": gesture.amount[0], "down": gesture.amount[1], "unit": gesture.unit}
    if gesture.clear:
        arguments["clear"] = True
    if gesture.enter:
        arguments["enter"] = True
    return ToolCall(gesture.kind.replace(" ", "_"), arguments)


def gesture_in(action: Action) -> Gesture:
    """Return the gesture that an action is: a call of its tool, or its line.

    Raises:
        InputError: it is neither; where it is an action of another system, the message says how to
            write that here.
    """
    if action.call is not None:
        return gesture_of(action.call)
    try:
        return read_line(action.text)
    except InputError:
        name, lines = translated(action.text)
        if lines:
            here = "; ".join(lines)
            raise InputError(f"This is an action of {name}; write it here as: {here}") from None
        raise


def gesture_of(call: ToolCall) -> Gesture:
    """Return the gesture that a call of its tool names.

    Raises:
        InputError: there is no such tool, or the arguments do not fit it.
    """
    try:
        checked(call, tuple(TOOLS.values()))
    except NotACall as wrong:
        raise InputError(str(wrong)) from None
    kind: Kind = call.name.replace("_", " ")  # type: ignore[assignment]
    given = dict(call.arguments)
    amount = (given.get("seconds", 0.0), 0.0)
    if kind == "scroll":
        amount = (given.get("right", 0.0), given.get("down", 0.0))
    return Gesture(
        kind,
        _target(given.get("target")),
        _target(given.get("to")),
        given.get(_TEXTS.get(kind, "text"), ""),
        amount,
        given.get("unit", "pixels"),
        given.get("enter", False),
        given.get("clear", False),
    )


def _target(text: str | None) -> Target | None:
    if text is None:
        return None
    found = read_target(text)
    return Id(text.strip()) if found is None else found
