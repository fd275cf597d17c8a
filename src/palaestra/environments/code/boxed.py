"""Worlds whose actions run in a sandbox: `NAME@KIND` chooses its kind (`terminal/count@unsafe`).

Without `@KIND`, it is the safest one that this machine can run. Any words are an action, and tasks
come from dice without end.
"""

from __future__ import annotations

from palaestra.core.environment import Environment
from palaestra.core.errors import UnknownName
from palaestra.core.task import TaskSet
from palaestra.safety.opening import KINDS
from palaestra.safety.sandbox import Sandbox


class Boxed(Environment):
    """A world with a sandbox; subclasses open it with `_sandbox_kind`, and close it."""

    free_text = True
    _sandbox: Sandbox | None = None

    def __init__(self, name: str = "") -> None:
        """Nothing is started before the first reset."""
        super().__init__(name)
        self.kind, _, sandbox = name.partition("@")
        self._sandbox_kind = sandbox or "auto"
        self._over = self._solved = False

    @classmethod
    def check_name(cls, name: str) -> None:
        """Raise UnknownName unless there is such a world, and such a sandbox behind an `@`."""
        plain, given, kind = name.partition("@")
        super().check_name(plain)
        if given and kind not in KINDS:
            raise UnknownName("sandbox", kind, KINDS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def __del__(self) -> None:
        self.close()

    @property
    def _id(self) -> str:
        return f"{type(self).__name__.lower()}/{self.name}"
