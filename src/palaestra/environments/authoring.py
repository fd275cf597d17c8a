"""Custom environments: a class whose typed methods, marked as tools, are the action space.

    class Notes(ToolWorld):
        '''Keep notes. The user says which.'''

        def begin(self, task):
            self.state = {"notes": []}
            return "Note that the milk is gone."

        @tool
        def add(self, text: str) -> str:
            '''Write a note.'''
            self.state["notes"].append(text)
            return f"{len(self.state['notes'])} note(s)"

        def verdict(self):
            return True if "milk" in " ".join(self.state["notes"]) else None

All mutable state is in `self.state`, as JSON; state keys, snapshots and reproducible episodes
follow from that. Schemas are generated from the methods' annotations and docstrings, so they cannot
disagree with them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.base import Adapter, refused
from palaestra.environments.shared.typed_tools import arguments_for, described_tool

F = TypeVar("F", bound=Callable[..., Any])
MARK = "_palaestra_tool"


def tool(method: F) -> F:
    """Mark a method of a `ToolWorld` as an action; its return value is the observation."""
    setattr(method, MARK, True)
    return method


class Refused(Exception):
    """An error for tools to raise: the call is valid, but refused; its text is the observation."""


class ToolWorld(Adapter, capabilities={"state_key", "snapshot"}, tools=True):
    """Subclass it: `begin`, methods marked with `tool`, `verdict`. The docstring instructs.

    A snapshot of another `version` is refused, so let it rise when the state changes its form.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.tools = _tools(type(self))
        self.state: dict[str, Any] = {}
        self._solved = False

    @property
    def instructions(self) -> str:
        """The class's docstring and the tools."""
        listed = "\n".join(tool.signature for tool in self.tools)
        return f"{inspect.getdoc(type(self)) or ''}\nCall one tool per reply:\n{listed}"

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Fill `self.state` for the task; return the first observation.

        Sample with `random.Random(task.seed)`, and keep the results in the state.
        """

    @abstractmethod
    def verdict(self) -> bool | None:
        """Return whether the task is solved (True) or failed (False); None while it is open."""

    def reward(self) -> float:
        """Return the reward of the last action; by default 1 on success."""
        return float(self._solved)

    def call(self, name: str, /, **arguments: Any) -> Action:
        """Return a tool call as an action, for an oracle."""
        call = ToolCall(name, arguments)
        return Action(str(call), call)

    @property
    def task(self) -> Task:
        """The current task."""
        return self._current()

    def _begin(self, task: Task) -> Observation:
        self.state, self._solved = {}, False
        return Observation(self.begin(task))

    def _act(self, action: Action) -> Transition:
        try:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
            arguments = arguments_for(_marked(type(self))[call.name], call)
        except NotACall as error:
            return refused(str(error))
        try:
            output = str(getattr(self, call.name)(**arguments))
        except Refused as error:
            return Transition(Observation(str(error) or "That is not possible."))
        decided = self.verdict()
        self._solved = bool(decided)
        return Transition(
            Observation(output or "Done."),
            reward=self.reward(),
            terminated=decided is not None,
            success=self._solved,
        )

    def state_key(self) -> str:
        """Hash the task and the state."""
        document = json.dumps([self.task.id, self.state, self._over], sort_keys=True)
        return hashlib.blake2b(document.encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        document = json.dumps([self.state, self._solved])
        return self._saved(document.encode(), self.spec.version)

    def restore(self, snapshot: bytes) -> None:
        """Restore the state; raises InputError for another environment's or version's snapshot."""
        document = json.loads(self._loaded(snapshot, self.spec.version))
        self.state, self._solved = document


# ── from methods to schemas ──────────────────────────────────────────────────


@cache
def _tools(cls: type[ToolWorld]) -> tuple[Tool, ...]:
    """Return the marked methods as tools, in the order of definition."""
    return tuple(described_tool(name, method) for name, method in _marked(cls).items())


@cache
def _marked(cls: type[ToolWorld]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, method in vars(base).items():
            if getattr(method, MARK, False):
                found[name] = getattr(cls, name)
    return found
