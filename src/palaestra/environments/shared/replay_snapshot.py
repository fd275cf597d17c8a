"""A task and its actions as bytes: the snapshot of environments that are restored by replaying."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task


def encode(task: Task, actions: Sequence[Action]) -> bytes:
    recorded = [[action.text, asdict(action.call) if action.call else None] for action in actions]
    return json.dumps({"task": asdict(task), "actions": recorded}).encode()


def decode(body: bytes) -> tuple[Task, list[Action]]:
    """Return the task and the actions that `encode` wrote."""
    saved = json.loads(body)
    task = Task(**{**saved["task"], "split": Split(saved["task"]["split"])})
    return task, [
        Action(text, ToolCall(**call) if call else None) for text, call in saved["actions"]
    ]
