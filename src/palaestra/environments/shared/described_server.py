"""Environments behind a server that a description names; independent of the protocol.

A subclass defines the form of its descriptions, how to reach its server (`link`), and what reset
and step mean. If a server dies, the next reset starts another one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from palaestra.core.environment import Capability, Spec, declared
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.base import Replayed
from palaestra.environments.shared.server_description import ServerDescription


class Closing(Protocol):
    def close(self) -> None: ...


D = TypeVar("D", bound=ServerDescription[Any])
L = TypeVar("L", bound=Closing)
T = TypeVar("T")


class DescribedEnvironment(Replayed, Generic[D, L]):
    """An environment behind a described server."""

    family: ClassVar[str]
    """The prefix of its ids; installed descriptions are entry points of `palaestra.FAMILY`."""

    title: ClassVar[str]  # of the protocol, in errors
    form: ClassVar[type[ServerDescription[Any]]]  # of its descriptions
    OVER = "The task is over."

    def __init__(self, name: str = "") -> None:
        """Read the description; the subclass connects to the server."""
        super().__init__(name)
        self._description = self.describe(name)
        self.package = self._description.edition
        self._link: L | None = None

    @abstractmethod
    def link(self) -> L:
        """Start the server or connect to it; raises EnvironmentFault if that fails."""

    @classmethod
    def installed(cls) -> dict[str, EntryPoint]:
        """Return the descriptions of installed packages, by name."""
        return {point.name: point for point in entry_points(group=f"palaestra.{cls.family}")}

    @classmethod
    def describe(cls, name: str) -> D:
        """Return the description of that name; override it to describe in Python.

        Raises:
            InputError: there is no such description, or the file is not one.
        """
        found: Any = name
        if not name.endswith(".toml"):
            known = cls.installed()
            if name not in known:
                raise UnknownName(f"installed description of an {cls.title} world", name, known)
            found = known[name].load()
        if isinstance(found, str | Path):
            found = cls.form.load(Path(found))
        described: D = found
        return described

    @classmethod
    def names(cls) -> list[str]:
        """Return the installed descriptions; files are not listed."""
        return sorted(cls.installed())

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec of the description; raises InputError if there is no description."""
        described, spec = cls.describe(name), declared(cls)
        has = spec.capabilities | ({Capability.SNAPSHOT} if described.deterministic else set())
        return replace(
            spec,
            id=f"{cls.family}/{name}",
            capabilities=has,
            deterministic=described.deterministic,
            typical_turns=described.turns,
        )

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """Return the description's tasks; if it lists none, one task per seed."""
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

    def close(self) -> None:
        """Close the connection; a server that was started for it is stopped."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def _no_task(self, task: Task) -> InputError:
        return InputError(
            f"'{task.id}' (of '{task.environment}') is not a task of {self.spec.id}; "
            "take one from that environment's own task set."
        )

    def _reached(self) -> L:
        try:
            return self.link()
        except EnvironmentFault as fault:
            raise EnvironmentFault(fault.kind, f"{self.spec.id}: {fault.detail}") from fault

    def _asked(self, ask: Callable[[L], T]) -> T:
        """Return the server's answer; if the server fails, close it until the next reset."""
        if self._link is None:
            raise EnvironmentFault("crash", f"{self.spec.id}: the server is gone; reset the world")
        try:
            return ask(self._link)
        except EnvironmentFault as fault:
            self.close()
            raise EnvironmentFault(fault.kind, f"{self.spec.id}: {fault.detail}") from fault
