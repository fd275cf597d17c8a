"""Sandboxes: isolation for untrusted programs.

A program sees its work folder, what is mounted, and nothing else of this machine. Whatever it
does, the caller gets a `Ran` that says how it ended: an exceeded limit is an outcome, never an
exception. Sandboxes are synchronous, as environments are; agents use them through a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from palaestra.core.errors import InputError, UnknownName

WORK = "/work"
"""The work folder's path inside the sandbox; relative paths start here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one program, with everything it starts, may use."""

    seconds: float = 10.0  # from its start to its end
    cpu_seconds: float = 10.0  # of all its processes
    memory: int = 512 * 2**20  # bytes
    processes: int = 64
    file_bytes: int = 64 * 2**20  # of one file
    disk_bytes: int = 256 * 2**20  # of the work folder and the temporary one
    output_bytes: int = 2**20  # of stdout, and of stderr

    def but(self, changes: Sequence[str]) -> Limits:
        """Return the limits with some changed, each written like `seconds=5`.

        Raises:
            UnknownName: there is no such limit.
            InputError: a limit is not a positive number.
        """
        found, kinds = self, {f.name: type(getattr(self, f.name)) for f in fields(self)}
        for text in changes:
            name, _, value = text.partition("=")
            if name not in kinds:
                raise UnknownName("limit", name, kinds)
            try:
                number = kinds[name](value)
            except ValueError:
                number = 0
            if not number > 0:
                raise InputError(
                    f"The limit '{text}' is not a positive number; write, for example, {name}=10."
                )
            found = replace(found, **{name: number})
        return found


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine that is visible inside."""

    outside: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a sandbox."""

    limits: Limits = Limits()
    mounts: tuple[Mount, ...] = ()
    hosts: tuple[str, ...] = ()  # "name:port" that may be reached; empty: no network at all
    environment: Mapping[str, str] = field(default_factory=dict)  # nothing else is inherited


class Ended(StrEnum):
    """Why a program ended."""

    EXIT = "exit"  # by itself
    SIGNAL = "signal"  # killed, not by us
    SECONDS = "seconds"  # the limit of wall-clock time
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of one program."""

    code: int | None  # its exit code; None if it did not exit by itself
    stdout: str  # undecodable bytes are replaced; cut at the limit
    stderr: str
    ended: Ended
    seconds: float


class Program(ABC):
    """A program that keeps running between calls, such as an interpreter.

    The limit `output_bytes` applies to output that was written and not yet received.
    """

    def begin(self, seconds: float) -> None:
        """Set its remaining lifetime, when it leaves a pool."""

    @abstractmethod
    def send(self, line: str) -> None:
        """Write one line to its standard input.

        Raises:
            BrokenPipeError: it has ended.
        """

    @abstractmethod
    def receive(self, seconds: float) -> str:
        """Return the next line of its standard output, without the newline.

        Raises:
            TimeoutError: no line came in that time; the program keeps running.
            EOFError: it has ended.
        """

    @abstractmethod
    def close(self) -> Ran:
        """End it and everything that it started; the result has its stderr."""


class Sandbox(ABC):
    """One work folder and the programs that run in it."""

    name: ClassVar[str]

    def __init__(self, settings: Settings = Settings()) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Return why this kind cannot run on this machine, and the remedy; None if it can."""

    @abstractmethod
    def run(self, command: Sequence[str], *, input: str = "", limits: Limits | None = None) -> Ran:
        """Run a program in the work folder to its end; no process that it started outlives it."""

    @abstractmethod
    def start(self, command: Sequence[str], *, limits: Limits | None = None) -> Program:
        """Start a program that keeps running; the limit `seconds` is for its whole lifetime."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file into the work folder; missing parent folders are created.

        Raises:
            InputError: the path leads out of the work folder.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file of the work folder; links are never followed out of it.

        Raises:
            InputError: no such file in the work folder.
        """

    @abstractmethod
    def files(self) -> dict[str, int]:
        """Return the path and size in bytes of every plain file in the work folder."""

    @abstractmethod
    def save(self) -> bytes:
        """Return the work folder as a tar archive; equal folders give equal bytes."""

    @abstractmethod
    def restore(self, saved: bytes) -> None:
        """Restore a saved work folder; temporary files are removed."""

    @abstractmethod
    def close(self) -> None:
        """End every program and remove the work folder."""
