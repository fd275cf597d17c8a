"""What a main agent and its modules are told, and how their lines are read."""

from __future__ import annotations

import re

MAIN = (
    "You do the task with modules: {}. Reply with one line: NAME: what the module is to do; or "
    "Finish: the action that ends the task."
)
MODULE = (
    "You are the module '{}', and do one piece of a task. Reply with one line: Action: an action; "
    "or Report: what was asked for."
)
REVIEW = (
    "You review a run of a task before its result is handed in. Reply with yes if it is complete "
    "and follows from what was found; else with no, and what to do differently."
)
OBJECTION = "\n\nAn earlier run was not accepted: "
_LINE = re.compile(r"^\s*(\w+):\s*(.+?)\s*$", re.MULTILINE)
UNREAD = "That was not understood. "


def parsed(text: str) -> tuple[str, str]:
    """Return the word before the first colon at the beginning of a line, and what follows it."""
    found = _LINE.search(text)
    return (found[1].lower(), found[2]) if found else ("", "")
