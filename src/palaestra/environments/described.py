"""Worlds behind a server that a description names: what they have in common, whatever the protocol.

A subclass says how a description is read (`load`), how its server is reached (`link`), and what
reset and step mean. A server that dies is gone until the next reset, which starts another one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import quote

from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.apps.past import read, written
from palaestra.environments.snapshots import opened, sealed


class Listed(Protocol):
    """A task in a description."""

    @property
    def id(self) -> str: ...
    @property
    def split(self) -> Split: ...


class Described(Protocol):
    """What every description says."""

    @property
    def tasks(self) -> Sequence[Listed]: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def turns(self) -> int: ...
    @property
    def edition(self) -> str: ...


class Closing(Protocol):
    def close(self) -> None: ...


D = TypeVar("D", bound=Described)
L = TypeVar("L", bound=Closing)
T = TypeVar("T")


class DescribedWorld(Environment, Generic[D, L]):
    """A session with a described server."""

    family: ClassVar[str]
    """The beginning of its ids; installed descriptions are entry points of `palaestra.FAMILY`."""

    title: ClassVar[str]  # of the protocol, in errors

    def __init__(self, name: str = "") -> None:
        """Read the description; the subclass reaches the server."""
        super().__init__(name)
        described = self._description = self.describe(name)
        has = {Capability.SNAPSHOT} if described.deterministic else set()
        self.capabilities = frozenset(has)  # type: ignore[misc]
        self.deterministic = described.deterministic  # type: ignore[misc]
        self._task: Task | None = None
        self._past: list[Action] = []  # that were understood, since the reset
        self._over = False
        self._link: L | None = None

    @classmethod
    @abstractmethod
    def load(cls, file: Path) -> D:
        """The description in a file; raises InputError if it is none."""

    @abstractmethod
    def link(self) -> L:
        """Start or reach the server; raises EnvironmentFault if that fails."""

    @classmethod
    def installed(cls) -> dict[str, EntryPoint]:
        """The descriptions that installed packages bring along, by name."""
        return {point.name: point for point in entry_points(group=f"palaestra.{cls.family}")}

    @classmethod
    def describe(cls, name: str) -> D:
        """The description of that name; override it to describe in Python.

        Raises:
            InputError: there is none, or it is none.
        """
        if name.endswith(".toml"):
            return cls.load(Path(name))
        known = cls.installed()
        if name not in known:
            raise UnknownName(f"installed description of an {cls.title} world", name, known)
        found: Any = known[name].load()
        described: D = cls.load(Path(found)) if isinstance(found, str | Path) else found
        return described

    @classmethod
    def names(cls) -> list[str]:
        """The installed descriptions; files are not listed."""
        return sorted(cls.installed())

    @classmethod
    def check_name(cls, name: str) -> None:
        """Raise InputError unless there is such a description."""
        cls.describe(name)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """Those of the description; one that lists none has as many as there are seeds."""
        name = environment.partition("/")[2]
        if not name and not cls.names():
            return ListedTasks(environment)  # of the family itself, without a description
        listed = cls.describe(name).tasks
        if not listed:
            return TaskSet(environment)
        rows: dict[Split, list[Mapping[str, Any]]] = {}
        for task in listed:
            rows.setdefault(task.split, []).append({"task": task.id})
        return ListedTasks(environment, rows=rows)

    @property
    def typical_turns(self) -> int:
        return self._description.turns

    def close(self) -> None:
        """End the session; a server that was started for it ends with it."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def snapshot(self) -> bytes:
        """The task and what was said and done, for servers that promise equal answers."""
        if Capability.SNAPSHOT not in self.capabilities:
            return super().snapshot()
        return sealed(self._id, self._description.edition, written(self._running(), self._past))

    def restore(self, snapshot: bytes) -> None:
        """Do it all again; raises InputError if it is another world's or edition's."""
        if Capability.SNAPSHOT not in self.capabilities:
            super().restore(snapshot)
        task, actions = read(opened(snapshot, self._id, self._description.edition))
        self.reset(task)
        for action in actions:
            self.step(action)

    @property
    def _id(self) -> str:
        return f"{self.family}/{quote(self.name)}"

    def _no_task(self, task: Task) -> InputError:
        return InputError(
            f"'{task.id}' (of '{task.environment}') is no task of {self._id}; "
            "take one of that environment's own task set."
        )

    def _running(self) -> Task:
        if self._task is None:
            raise InputError(f"This {self.title} world has no task yet; call reset with one first.")
        return self._task

    def _reached(self) -> L:
        try:
            return self.link()
        except EnvironmentFault as fault:
            raise EnvironmentFault(fault.kind, f"{self._id}: {fault.detail}") from fault

    def _asked(self, ask: Callable[[L], T]) -> T:
        """What the server answers; where it breaks, it is gone until the next reset."""
        if self._link is None:
            raise EnvironmentFault("crash", f"{self._id}: the server is gone; reset the world")
        try:
            return ask(self._link)
        except EnvironmentFault as fault:
            self.close()
            raise EnvironmentFault(fault.kind, f"{self._id}: {fault.detail}") from fault
