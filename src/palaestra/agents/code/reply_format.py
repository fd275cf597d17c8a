"""How an agent that acts by code replies: what it is told, and how its blocks are read."""

from __future__ import annotations

import re

FORMAT = (
    "You act by writing Python. Reply with one block:\n```python\n…\n```\n"
    "It runs in an interpreter that keeps its variables, and you see what it prints, the value of "
    "its last expression, and errors. These functions act in the world, at once, and return what "
    "it answers:\n"
)
KEEP = (
    "\nTo keep a function for later tasks, define it in the python block and add a block that "
    "tests it by itself, where no world is:\n```test\nassert …\n```"
)
KNOWN = "\nFunctions that were kept; call them as they are:\n"
NOW = "\n\nThese functions act in the world now:\n"
NO_CODE = "There was no python block in your reply, so nothing was done."


def block(reply: str, kind: str) -> str | None:
    """Return the content of the first fenced block of that kind, closed or not."""
    found = re.search(rf"```{kind}[^\S\n]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
    return found.group(1) if found else None
