"""Checks of the to-do list's tasks, named by `todo.toml`."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.environments.families.mcp.description import Assignment, Made


def tells_first(task: Assignment, calls: Sequence[Made], words: str) -> bool:
    """Whether the list was looked at, and its first entry is named."""
    looked = any(call.name in ("show", "sheet") and not call.failed for call in calls)
    return looked and task.parameters["entries"][0] in words


def share_finished(task: Assignment, calls: Sequence[Made], words: str) -> float:
    """Which part of the entries was ticked off."""
    finished = sum(call.name == "finish" and not call.failed for call in calls)
    return finished / len(task.parameters["entries"])
