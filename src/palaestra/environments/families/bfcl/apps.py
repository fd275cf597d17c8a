"""The package's apps and its checker, isolated in a separate namespace per episode.

The package keeps the apps of every episode in the globals of one module, under a name made of the
model and the task, and never frees them. Here its own functions run, unchanged, over a copy of
those globals, which is freed with the episode. So two environments with the same task share
nothing, and the app's name is the same in both (the package writes it into a text that mentions a
function with a bracket).

The apps share more than that: in long contexts all travellers have the same credit cards and
bookings, from a constant, and all tweets without mentions share one list, a default argument. A
payment or a mention of one episode would appear in another. So each namespace has its own classes
of apps, with the package's code over copies of such constants and defaults. The checker's reference
apps share them with the agent's apps, as in the package. The precision that a calculation sets is
reset.
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

from palaestra.environments.families.bfcl.data import Conversation

MODEL = "palaestra"  # part of the package's names for apps
EXECUTE, CHECK = "execute_multi_turn_func_call", "multi_turn_checker"
Turns = Sequence[Sequence[Sequence[str]]]  # turns of steps of calls
_one_at_a_time = threading.Lock()  # the package uses global variables


class Modules:
    """A replacement for `importlib` where the package imports the class of an app."""

    def __init__(self) -> None:
        self._made: dict[str, SimpleNamespace] = {}

    def import_module(self, name: str) -> SimpleNamespace:
        """Return the module's classes with separate constants and default arguments."""
        if name not in self._made:
            shared = vars(importlib.import_module(name))
            own = {key: _copied(key, value) for key, value in shared.items()}
            classes = {key: _own(value, own) for key, value in own.items() if _of(value, name)}
            self._made[name] = SimpleNamespace(**classes)
        return self._made[name]


class Apps:
    """The apps of one episode, or of one check."""

    def __init__(self, task: Conversation) -> None:
        self._task = task
        self._globals = {**vars(multi_turn_utils), "importlib": Modules()}
        self.execute = _within(self._globals, EXECUTE)

    def do(self, calls: Sequence[str]) -> list[str]:
        """Execute the calls of one step; return the result of each."""
        task = self._task
        with _quietly():
            found, _ = self.execute(
                list(calls), task.start, task.apps, MODEL, task.id, long_context=task.is_long
            )
        return list(found)

    def close(self) -> None:
        """Free the apps; otherwise reference cycles keep them until garbage collection."""
        self._globals.clear()


def judged(task: Conversation, turns: Turns) -> dict[str, Any]:
    """Return the verdict of the package's checker on the given leading turns.

    It executes all calls again, the agent's and the true ones, and compares after each turn.
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
    """Return the package's function of that name with `namespace` as its globals."""
    found = namespace[name]
    namespace[name] = FunctionType(found.__code__, namespace, name, found.__defaults__)
    return namespace[name]


def _of(value: Any, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _own(app: type, namespace: dict[str, Any]) -> type:
    """Return the class of an app, with its functions over other globals and fresh defaults."""
    functions = {
        name: FunctionType(
            found.__code__, namespace, name, copy.deepcopy(found.__defaults__), found.__closure__
        )
        for name, found in vars(app).items()
        if isinstance(found, FunctionType)
    }
    return type(app.__name__, (app,), functions)


def _copied(name: str, value: Any) -> Any:
    """Return a module's global variable; a mutable constant is copied."""
    changes = isinstance(value, (list, dict, set)) and not name.startswith("__")
    return copy.deepcopy(value) if changes else value


def _quietly() -> ExitStack:
    """Hold the lock, and reset the precision of calculations afterwards."""
    stack = ExitStack()
    stack.enter_context(_one_at_a_time)
    stack.enter_context(decimal.localcontext())
    stack.enter_context(mpmath.workdps(mpmath.mp.dps))
    return stack
