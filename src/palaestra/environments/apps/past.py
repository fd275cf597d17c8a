"""A task and what was said and done in it, as bytes: what worlds that can be replayed snapshot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task


def written(task: Task, actions: Sequence[Action]) -> bytes:
    said = [[action.text, asdict(action.call) if action.call else None] for action in actions]
    return json.dumps({"task": asdict(task), "actions": said}).encode()


def read(body: bytes) -> tuple[Task, list[Action]]:
    """What `written` wrote."""
    saved = json.loads(body)
    task = Task(**{**saved["task"], "split": Split(saved["task"]["split"])})
    return task, [
        Action(text, ToolCall(**call) if call else None) for text, call in saved["actions"]
    ]
