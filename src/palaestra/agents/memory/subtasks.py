"""Task memory: a tree of sub-tasks and their states instead of the conversation (TME, Ye 2025).

The model sees the task, the tree and the last observation. Its reply may change the tree, one
change per line: `+ 1.2 words` adds a sub-task below 1, `v 1.2` marks it done, and `~ 1.2 words`
rewrites it and reopens it and everything below it, so a correction reaches what depends on it. At
most `limit` sub-tasks are kept; the oldest done ones are dropped first. So prompts are bounded, and
each is a separate branch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import CUT
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

FORMAT = (
    "You remember only the list of sub-tasks. Change it by lines such as `+ 1.2 words` (a new "
    "sub-task below 1), `v 1.2` (it is done), `~ 1.2 words` (it is another one: do it again). "
    "Then, on the last line: `Action: one action`."
)
HEAD = "Sub-tasks:"
CHANGE = re.compile(r"^([+v~]) (\d+(?:\.\d+)*)[ .:]*(.*)$", re.MULTILINE)
LONGEST = 100  # characters of a sub-task


@dataclass(slots=True)
class SubTask:
    """A node of the tree; its position is its key."""

    words: str
    done: bool = False


class TaskTree(Memory):
    """The task, its sub-tasks, and the last observation."""

    def __init__(self, instructions: str, first: str, limit: int) -> None:
        self._instructions, self._first, self._now = system(instructions), first, first
        self._limit = limit
        self.nodes: dict[tuple[int, ...], SubTask] = {}  # by number: (1, 2) is 1.2

    @property
    def messages(self) -> list[Message]:
        if not self.nodes:
            text = self._first if self._now is self._first else f"{self._first}{CUT}{self._now}"
            return [self._instructions, user(text)]
        lines = [
            f"{'.'.join(map(str, number))} [{'done' if node.done else 'open'}] {node.words}"
            for number, node in sorted(self.nodes.items())
        ]
        tree = "\n".join([HEAD, *lines])
        return [self._instructions, user(f"{self._first}{CUT}{tree}{CUT}{self._now}")]

    def add(self, reply: str, observation: str) -> None:
        self._now = observation
        for sign, number, words in CHANGE.findall(reply):
            self._change(sign, tuple(map(int, number.split("."))), words.strip()[:LONGEST])
        for number in [n for n, node in self.nodes.items() if node.done] + list(self.nodes):
            if len(self.nodes) <= self._limit:
                break
            self.nodes.pop(number, None)

    def _change(self, sign: str, number: tuple[int, ...], words: str) -> None:
        if sign == "+":
            self.nodes[number] = SubTask(words)
            return
        for key, node in self.nodes.items():
            if key[: len(number)] == number:  # it and all below it
                node.done = sign == "v"
        if sign == "~" and number in self.nodes:
            self.nodes[number].words = words


class SubTasksAgent(RememberingAgent):
    """Remembers only a tree of sub-tasks and their states (TME, Ye 2025)."""

    name = "subtasks"

    def __init__(self, *, limit: Annotated[int, Field(ge=1)] = 12) -> None:
        """Keep at most `limit` sub-tasks."""
        self.limit = limit

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        instructions = f"{session.instructions}\n{FORMAT}"
        return TaskTree(instructions, session.observation.text, self.limit)

    def phrase(self, action: Action) -> str:
        return f"Action: {action.text}"

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        step = self.phrase(actions[0])
        tree = messages[-1].text.partition(HEAD)[2].partition(CUT)[0]
        going = re.findall(r"(?m)^(\d+) \[open\] (.*)$", tree)
        if not going:
            plan = [f"+ {number} {a.text}" for number, a in enumerate(actions[:3], 1)]
            return "\n".join([*plan, step])
        return f"v {going[0][0]}\n{step}"
