"""WebArena's actions by id: a verb with its arguments in brackets, such as `click [12]`.

Source: Zhou et al. 2024, https://github.com/web-arena-x/webarena. Its prompt has an agent stop with
the answer `N/A` at a task that is impossible.
"""

from __future__ import annotations

import re

from palaestra.core.gesture import Gesture, Id, Target
from palaestra.core.gestures.dialect_reading import PAGES, unread
from palaestra.core.gestures.dialect_writing import cannot, page_direction
from palaestra.core.gestures.key_names import keys_called, split_keys

NAME = "WebArena"
FORMS = (
    "click [12]",
    "hover [12]",
    "type [7] [text] [1]",
    "press [Control+a]",
    "scroll [down]",
    "goto [http://shop/]",
    "go_back",
    "go_forward",
    "new_tab",
    "tab_focus [1]",
    "close_tab",
    "stop [the answer]",
)
IMPOSSIBLE = "N/A"
_ACTION = re.compile(r"([a-z_]+)\s*(.*)")
_WITHOUT = {
    "go_back": Gesture("back"),
    "go_forward": Gesture("forward"),
    "new_tab": Gesture("tab", text="new"),
    "close_tab": Gesture("tab", text="close"),
}


def read(text: str) -> list[Gesture]:
    """Return the one gesture of an action; raises InputError for anything else."""
    found = _ACTION.fullmatch(text.strip())
    if found is None:
        unread(NAME, text, f"write one of {'; '.join(FORMS)}")
    verb, rest = found.groups()
    gesture = _read(verb, rest, text)
    return [gesture]


def _read(verb: str, rest: str, text: str) -> Gesture:
    if verb in _WITHOUT and not rest:
        return _WITHOUT[verb]
    if verb == "scroll" and (found := re.fullmatch(r"\[?(up|down)\]?", rest)):
        return Gesture("scroll", amount=PAGES[found[1]], unit="pages")
    if verb == "type" and (found := re.fullmatch(r"\[(\d+)\] ?\[(.+?)\](?: ?\[([01])\])?", rest)):
        return Gesture("type", Id(found[1]), text=found[2], enter=found[3] != "0")
    if verb in ("click", "hover") and (found := re.fullmatch(r"\[(\d+)\]", rest)):
        return Gesture("click" if verb == "click" else "hover", Id(found[1]))
    if verb == "tab_focus" and (found := re.fullmatch(r"\[(\d+)\]", rest)):
        return Gesture("tab", text=str(int(found[1])))
    inner = rest[1:-1] if rest.startswith("[") and rest.endswith("]") else None
    if verb == "press" and inner:
        return Gesture("press", text=keys_called(split_keys(inner)))
    if verb == "goto" and inner:
        return Gesture("go", text=inner)
    if verb == "stop" and (inner is not None or not rest):
        return Gesture("give up") if inner == IMPOSSIBLE else Gesture("answer", text=inner or "")
    unread(NAME, text, f"write one of {'; '.join(FORMS)}")


def write(gesture: Gesture) -> str:
    """Return the action of a gesture; raises InputError if there is none."""
    text = gesture.text
    if len(text.splitlines()) > 1 or text != text.strip("\r\n"):
        cannot(NAME, gesture, "its actions are one line")
    match gesture.kind:
        case "click" | "hover":
            return f"{gesture.kind} [{_id(gesture, gesture.target)}]"
        case "type":
            if gesture.clear or not text:
                cannot(NAME, gesture, "it adds a text to what a field holds")
            return f"type [{_id(gesture, gesture.target)}] [{text}] [{gesture.enter:d}]"
        case "press" if gesture.target is None:
            return f"press [{text}]"
        case "scroll" if gesture.target is None and gesture.amount[0] == 0:
            return f"scroll [{page_direction(NAME, gesture)}]"
        case "go":
            return f"goto [{text}]"
        case "back" | "forward":
            return f"go_{gesture.kind}"
        case "tab" if text in ("new", "close"):
            return f"{text}_tab"
        case "tab":
            return f"tab_focus [{text}]"
        case "answer" if text == IMPOSSIBLE:
            cannot(NAME, gesture, "that answer gives up")
        case "answer":
            return f"stop [{text}]"
        case "give up":
            if text:
                cannot(NAME, gesture, "it gives no reason")
            return f"stop [{IMPOSSIBLE}]"
        case _:
            cannot(NAME, gesture, f"its actions are {', '.join(FORMS)}")


def _id(gesture: Gesture, target: Target | None) -> str:
    if not isinstance(target, Id) or not re.fullmatch(r"\d+", target.id):
        cannot(NAME, gesture, "its targets are ids that are numbers")
    return target.id
