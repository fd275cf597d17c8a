"""Worlds of one's own: a class whose typed methods, marked as tools, are the action space.

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

Everything that changes lives in `self.state`, as JSON: state keys, snapshots and equal episodes for
equal tasks follow from that. Schemas follow from the methods' annotations and docstrings, so they
cannot disagree with them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.snapshots import opened, sealed

F = TypeVar("F", bound=Callable[..., Any])
MARK = "_palaestra_tool"


def tool(method: F) -> F:
    """Mark a method of a `ToolWorld` as an action; it returns what the agent sees."""
    setattr(method, MARK, True)
    return method


class Refused(Exception):
    """Raised by a tool: the call was understood, and the world says no, in these words."""


class ToolWorld(Environment):
    """Subclass it: `begin`, methods marked with `tool`, `verdict`. The docstring instructs."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT})
    version: ClassVar[str] = "1"
    """Of the world and its state; a snapshot of another version is refused."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.tools = _tools(type(self))
        self.state: dict[str, Any] = {}
        self.task: Task | None = None
        self._over = self._solved = False

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """Endless tasks, told apart by their seeds; override it for a list of your own."""
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        """The class's docstring and the tools."""
        listed = "\n".join(tool.signature for tool in self.tools)
        return f"{inspect.getdoc(type(self)) or ''}\nCall one tool per reply:\n{listed}"

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Fill `self.state` for the task; returns what the agent sees first.

        Chance comes from `random.Random(task.seed)`; what it decides belongs into the state.
        """

    @abstractmethod
    def verdict(self) -> bool | None:
        """Whether the task is solved (True) or lost (False); None while it is open."""

    def reward(self) -> float:
        """Of the action that was just done; 1 on success by default."""
        return float(self._solved)

    def call(self, name: str, /, **arguments: Any) -> Action:
        """The call of a tool as an action, for an oracle."""
        call = ToolCall(name, arguments)
        return Action(str(call), call)

    def reset(self, task: Task) -> Observation:
        self.task, self.state = task, {}
        self._over = self._solved = False
        return Observation(self.begin(task))

    def step(self, action: Action) -> Transition:
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        try:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
            arguments = _arguments(type(self), call)
        except NotACall as why:
            return Transition(Observation(str(why)), valid=False)
        try:
            said = str(getattr(self, call.name)(**arguments))
        except Refused as why:
            return Transition(Observation(str(why) or "That is not possible."))
        decided = self.verdict()
        self._over, self._solved = decided is not None, bool(decided)
        return Transition(
            Observation(said or "Done."),
            reward=self.reward(),
            terminated=self._over,
            success=self._solved,
        )

    def state_key(self) -> str:
        """The task and the state."""
        document = json.dumps([self._task().id, self.state, self._over], sort_keys=True)
        return hashlib.blake2b(document.encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        document = [asdict(self._task()), self.state, self._over, self._solved]
        return sealed(self._id, self.version, json.dumps(document).encode())

    def restore(self, snapshot: bytes) -> None:
        """Raises InputError for a snapshot of another world or version."""
        document = json.loads(opened(snapshot, self._id, self.version))
        task, self.state, self._over, self._solved = document
        self.task = Task(**{**task, "split": Split(task["split"])})

    @property
    def _id(self) -> str:
        return f"{type(self).__name__}/{self.name}"

    def _task(self) -> Task:
        if self.task is None:
            raise InputError(f"This {type(self).__name__} has no task yet; call reset first.")
        return self.task


# ── from methods to schemas ──────────────────────────────────────────────────


@cache
def _tools(world: type[ToolWorld]) -> tuple[Tool, ...]:
    """The marked methods, in the order in which they were written."""
    return tuple(_described(name, method) for name, method in _marked(world).items())


@cache
def _marked(world: type[ToolWorld]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(world.__mro__):
        for name, method in vars(base).items():
            if getattr(method, MARK, False):
                found[name] = getattr(world, name)
    return found


def _described(name: str, method: Callable[..., Any]) -> Tool:
    text = inspect.getdoc(method) or ""
    described = text.partition("\n")[0].strip()
    if not described:
        raise InputError(f"The tool '{name}' has no docstring; its first line is what agents read.")
    schema = _model(method).model_json_schema()
    properties = {
        argument: {key: value for key, value in part.items() if key != "title"}
        for argument, part in schema.get("properties", {}).items()
    }
    for argument, words in re.findall(r"^\s+(\w+): (.+)$", text.partition("Args:")[2], re.M):
        if argument in properties:
            properties[argument]["description"] = words
    parameters = {"type": "object", "properties": properties}
    for key in ("required", "$defs"):
        if key in schema:
            parameters[key] = schema[key]
    return Tool(name, described, parameters)


@cache
def _model(method: Callable[..., Any]) -> Any:
    """The method's arguments as a pydantic model.

    Raises:
        InputError: an argument has no annotation.
    """
    hints = get_type_hints(method)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        if name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InputError(
                f"The tool '{method.__name__}' takes '{name}', which has no type of its own; "
                "annotate it, so that a schema can be made of it."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(method.__name__, __config__=ConfigDict(strict=True), **fields)


def _arguments(world: type[ToolWorld], call: ToolCall) -> dict[str, Any]:
    """The call's arguments, converted to what the method expects; defaults are left to it."""
    try:
        model = _model(_marked(world)[call.name]).model_validate_json(
            json.dumps(dict(call.arguments))
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise NotACall(f"{call.name}: '{place}': {first['msg']}") from None
    return {name: getattr(model, name) for name in call.arguments}
