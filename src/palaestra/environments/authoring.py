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
import re
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.base import Adapter, refused

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
            arguments = _arguments(type(self), call)
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
    return tuple(_described(name, method) for name, method in _marked(cls).items())


@cache
def _marked(cls: type[ToolWorld]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, method in vars(base).items():
            if getattr(method, MARK, False):
                found[name] = getattr(cls, name)
    return found


def _described(name: str, method: Callable[..., Any]) -> Tool:
    text = inspect.getdoc(method) or ""
    described = text.partition("\n")[0].strip()
    if not described:
        raise InputError(
            f"The tool '{name}' has no docstring, whose first line agents read; write one."
        )
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
    """Return the method's arguments as a pydantic model.

    Raises:
        InputError: an argument has no annotation, or is `*args` or `**kwargs`.
    """
    hints = get_type_hints(method)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        if name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InputError(
                f"The tool '{method.__name__}' takes '{name}', which has no type of its own, so "
                "there is no schema for it; annotate it."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(method.__name__, __config__=ConfigDict(strict=True), **fields)


def _arguments(cls: type[ToolWorld], call: ToolCall) -> dict[str, Any]:
    """Return the call's arguments in the method's types; the method fills in its defaults."""
    try:
        model = _model(_marked(cls)[call.name]).model_validate_json(
            json.dumps(dict(call.arguments))
        )
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise NotACall(f"{call.name}: '{location}': {first['msg']}") from None
    return {name: getattr(model, name) for name in call.arguments}
