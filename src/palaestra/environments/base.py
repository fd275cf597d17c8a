"""Bases for adapters of packages: the current task, its end, replay snapshots, hashed state keys.

An `Adapter` implements `_begin` and `_act` in place of `reset` and `step`; the base checks that
there is a task and refuses actions after its end. A `Replayed` adapter is saved as its task and its
valid actions, and restored by replaying them.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import ClassVar, TypeVar
from urllib.parse import quote

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task
from palaestra.environments.shared.replay_snapshot import decode, encode
from palaestra.environments.snapshots import opened, sealed


class Adapter(Environment):
    """An environment with a current task; it refuses actions after the task's end."""

    OVER: ClassVar[str] = "It is over."  # the answer to an action after the end

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._task: Task | None = None
        self._over = False

    def reset(self, task: Task) -> Observation:
        """Start the task; if that fails, there is no current task until the next reset."""
        self._task, self._over = task, False
        try:
            return self._begin(task)
        except BaseException:
            self._task = None
            raise

    def step(self, action: Action) -> Transition:
        self._current()
        if self._over:
            return refused(self.OVER)
        transition = self._act(action)
        if transition.valid:
            self._over = transition.terminated or transition.truncated
        return transition

    @abstractmethod
    def _begin(self, task: Task) -> Observation:
        """Start a task; raises InputError for a task of another environment."""

    @abstractmethod
    def _act(self, action: Action) -> Transition:
        """Do an action; called only before the end of the task."""

    def _current(self) -> Task:
        """Return the current task; raises InputError before the first reset."""
        if self._task is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no task yet; call reset with a task first."
            )
        return self._task

    def _saved(self, body: bytes, package: str) -> bytes:
        """Return a snapshot with the task, whether it is over, a body and the package's version."""
        head = json.dumps([asdict(self._current()), self._over]).encode()
        return sealed(_label(self.spec.id), package, head + b"\n" + body)

    def _loaded(self, snapshot: bytes, package: str) -> bytes:
        """Return the body of a snapshot; its task becomes the current one.

        Raises:
            InputError: the snapshot is of another environment or another version.
        """
        head, _, body = opened(snapshot, _label(self.spec.id), package).partition(b"\n")
        task, self._over = json.loads(head)
        self._task = Task(**{**task, "split": Split(task["split"])})
        return body


class Replayed(Adapter):
    """An adapter whose snapshot is its task and the actions so far, which are replayed.

    A snapshot may also hold the state (`_saved_state`); where that comes back, nothing is replayed.
    """

    package: str = "1"  # the package's version; a snapshot of another version is refused

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._past: list[Action] = []  # the valid actions since the reset

    def reset(self, task: Task) -> Observation:
        self._past = []
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if transition.valid:
            self._past.append(action)
        return transition

    def snapshot(self) -> bytes:
        """Return the task and the actions so far, which lead to the same state."""
        if Capability.SNAPSHOT not in self.spec.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        body = encode(self._current(), self._past) + b"\n" + self._saved_state()
        return self._saved(body, self.package)

    def restore(self, snapshot: bytes) -> None:
        """Replay the actions; raises InputError for another environment's or version's snapshot."""
        if Capability.SNAPSHOT not in self.spec.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        body, _, state = self._loaded(snapshot, self.package).partition(b"\n")
        task, actions = decode(body)
        if state and self._return_to(task, state, actions):
            self._past = actions
            return
        self.reset(task)
        for action in actions:
            self.step(action)

    def _saved_state(self) -> bytes:
        """Return the present state, for worlds that can return to one; empty: they replay."""
        return b""

    def _return_to(self, task: Task, state: bytes, actions: Sequence[Action]) -> bool:
        """Return to a state that `_saved_state` gave; whether it is exactly that one.

        Args:
            task: in which it was.
            state: not empty.
            actions: all that led to it, of which the last may have to be done again.
        """
        return False


R = TypeVar("R", bound=Replayed)


def plan_in_copy(environment: R, next_action: Callable[[R], Action | None]) -> list[Action]:
    """Return the actions of an expert from here to the task's end, found by taking them in a copy.

    Args:
        environment: a state of a task that is not over; it stays as it is.
        next_action: returns the expert's action in a state of the copy; None: the task is lost.

    Returns:
        the actions; none if they do not end in success.
    """
    plan: list[Action] = []
    step = Transition(Observation(""))
    with closing(type(environment)(environment.spec.name)) as copy:
        copy.restore(environment.snapshot())
        while not step.terminated and (action := next_action(copy)) is not None:
            plan.append(action)
            step = copy.step(action)
    return plan if step.success else []


def refused(text: str) -> Transition:
    """Return the transition of an invalid action."""
    return Transition(Observation(text), valid=False)


def hashed(*state: object) -> str:
    """Return a state key of fixed length; equal states have equal keys."""
    return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()


def without_parameters(task: Task, remedy: str = "choose a level by its name instead") -> None:
    """Raise InputError if the task has parameters; its name and its seed define it completely."""
    if task.parameters:
        raise InputError(
            f"Tasks of '{task.environment}' take no parameters, but '{task.id}' has "
            f"{', '.join(map(repr, task.parameters))}; {remedy}."
        )


def _label(id: str) -> str:
    return quote(id, safe="/:@+=,")
