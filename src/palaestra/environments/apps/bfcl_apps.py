"""The package's apps and its checker, each time in a namespace of its own.

The package keeps the apps of every episode among the globals of one module, under a name made of
the model and the task, and never lets them go. Here its own functions run, unchanged, over a copy
of those globals, which goes with the episode; so two worlds with the same task share nothing, and
still no name shows which of them it is (the package writes such a name into a text that mentions
a function with a bracket).

The apps share more than that: in long contexts all travellers have the same credit cards and
bookings, out of a constant, and all tweets that mention nobody have one list, a default argument.
What one episode pays or mentions would turn up in another. So each namespace has its own classes
of apps, with the package's code over copies of such constants and defaults; the judge's true apps
share them with the agent's that it compares them to, as they do in the package. And the precision
that a calculation sets is set back.
"""

from __future__ import annotations

import copy
import decimal
import importlib
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import FunctionType, SimpleNamespace
from typing import Any

import mpmath
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

from palaestra.environments.apps.bfcl_data import Conversation

MODEL = "palaestra"  # the package makes the names of apps with it
EXECUTE, CHECK = "execute_multi_turn_func_call", "multi_turn_checker"
Turns = Sequence[Sequence[Sequence[str]]]  # of each turn, of each of its steps, the calls
_one_at_a_time = threading.Lock()  # the package computes in global variables


class Modules:
    """Stands in for `importlib` where the package looks for the class of an app."""

    def __init__(self) -> None:
        self._made: dict[str, SimpleNamespace] = {}

    def import_module(self, name: str) -> SimpleNamespace:
        """The module's classes, with constants and default arguments of their own."""
        if name not in self._made:
            shared = vars(importlib.import_module(name))
            own = {key: _copied(key, value) for key, value in shared.items()}
            classes = {key: _own(value, own) for key, value in own.items() if _of(value, name)}
            self._made[name] = SimpleNamespace(**classes)
        return self._made[name]


class Apps:
    """The apps of one episode, or those of one judgement."""

    def __init__(self, task: Conversation) -> None:
        self._task = task
        self._globals = {**vars(multi_turn_utils), "importlib": Modules()}
        self.execute = _within(self._globals, EXECUTE)

    def do(self, calls: Sequence[str]) -> list[str]:
        """Execute the calls of one step; what each of them returned."""
        task = self._task
        with _quietly():
            found, _ = self.execute(
                list(calls), task.start, task.apps, MODEL, task.id, long_context=task.is_long
            )
        return list(found)

    def close(self) -> None:
        """Let the apps go; they are part of circles that would wait for the garbage collector."""
        self._globals.clear()


def judged(task: Conversation, turns: Turns) -> dict[str, Any]:
    """What the package's checker says of the first turns, however many there are.

    It does all calls anew, the agent's and the true ones, and compares after each turn.
    """
    own = dict(vars(multi_turn_checker))
    check = _within(own, CHECK)
    entry = {"id": task.id, "initial_config": task.start, "involved_classes": task.apps}
    apps = Apps(task)
    own[EXECUTE] = apps.execute
    with _quietly():
        found: dict[str, Any] = check(turns, task.truth[: len(turns)], entry, task.category, MODEL)
    apps.close()
    return found


def _within(namespace: dict[str, Any], name: str) -> FunctionType:
    """The package's function of that name, with other globals."""
    found = namespace[name]
    namespace[name] = FunctionType(found.__code__, namespace, name, found.__defaults__)
    return namespace[name]


def _of(value: Any, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _own(app: type, namespace: dict[str, Any]) -> type:
    """The class of an app, with its functions over other globals and fresh defaults."""
    functions = {
        name: FunctionType(
            found.__code__, namespace, name, copy.deepcopy(found.__defaults__), found.__closure__
        )
        for name, found in vars(app).items()
        if isinstance(found, FunctionType)
    }
    return type(app.__name__, (app,), functions)


def _copied(name: str, value: Any) -> Any:
    """A global variable of a module; a constant that could be changed is copied."""
    changes = isinstance(value, (list, dict, set)) and not name.startswith("__")
    return copy.deepcopy(value) if changes else value


def _quietly() -> ExitStack:
    """Alone, and with the precision of calculations set back afterwards."""
    stack = ExitStack()
    stack.enter_context(_one_at_a_time)
    stack.enter_context(decimal.localcontext())
    stack.enter_context(mpmath.workdps(mpmath.mp.dps))
    return stack
