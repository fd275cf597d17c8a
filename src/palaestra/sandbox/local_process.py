"""Base classes of back ends whose programs are processes of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from palaestra.core.errors import InputError, PalaestraError
from palaestra.sandbox.background_program import BackgroundProgram
from palaestra.sandbox.base import WORK, Limits, Program, Ran, Sandbox, Settings
from palaestra.sandbox.program_run import Running, run_to_end
from palaestra.sandbox.work_folder import Folder


class LocalSandbox(Sandbox):
    """A work folder on this machine, and programs that `_begin` starts in it."""

    folder: Folder
    temporary: tuple[Folder, ...] = ()  # emptied when the work folder is restored

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        self._programs: list[Program] = []
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def _trouble(cls) -> str | None:
        """Run the simplest program in a new sandbox; return what fails, or None."""
        try:
            sandbox = cls()
            try:
                ran = sandbox.run(["true"])
            finally:
                sandbox.close()
        except (PalaestraError, OSError) as error:
            return str(error)
        return None if ran.code == 0 else ran.stderr.strip() or f"it ended by {ran.ended}"

    @abstractmethod
    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        """Start a program; `input` None leaves its standard input open."""

    def run(self, command: Sequence[str], *, input: str = "", limits: Limits | None = None) -> Ran:
        limits = limits or self.settings.limits
        return run_to_end(self._begin(self._checked(command), limits, input.encode()))

    def start(self, command: Sequence[str], *, limits: Limits | None = None) -> Program:
        limits = limits or self.settings.limits
        program = BackgroundProgram(self._begin(self._checked(command), limits, None))
        with self._lock:
            self._programs.append(program)
        return program

    def write(self, path: str, data: bytes) -> None:
        self.folder.write(path, data)

    def read(self, path: str) -> bytes:
        return self.folder.read(path)

    def files(self) -> dict[str, int]:
        return self.folder.files()

    def save(self) -> bytes:
        return self.folder.save(self.settings.limits.disk_bytes)

    def restore(self, saved: bytes) -> None:
        self.folder.restore(saved)
        for folder in self.temporary:
            folder.empty()

    def close(self) -> None:
        with self._lock:
            programs, self._programs, self._closed = self._programs, [], True
        for program in programs:
            program.close()

    def _checked(self, command: Sequence[str]) -> list[str]:
        if self._closed:
            raise InputError("The sandbox is closed; open another one.")
        if not command or isinstance(command, str):
            raise InputError(
                f"The command {command!r} is not a list of words; give the program and its "
                "arguments, such as ['python3', 'run.py']."
            )
        for word in command:
            if "\0" in word:
                raise InputError(f"The command word {word!r} contains a zero byte; remove it.")
        return list(command)


class HostSandbox(LocalSandbox):
    """A sandbox whose folders are on this machine's disk until it is closed or collected."""

    def _settle(self) -> None:
        """Create the folders; to be called after the settings have been checked."""
        self._root = Path(tempfile.mkdtemp(prefix=f"palaestra-{self.name}-"))
        self.folder = Folder(self._root / "work")
        self.temporary = (Folder(self._root / "tmp"),)
        for folder in (self.folder, *self.temporary):
            folder.path.mkdir()
        self._end = weakref.finalize(self, _discard, self._root, os.getpid())

    def close(self) -> None:
        super().close()
        self._end()


def _discard(root: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork: the folder is its parent's
        Folder(root).empty()
        shutil.rmtree(root, ignore_errors=True)


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of programs; the caller's own are not inherited.

    Raises:
        InputError: a name or value is impossible.
    """
    found = {**base, **settings.environment}
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"The environment variable '{name}' cannot be set, because its name is empty or "
                "has '=', or it contains a zero byte; rename or change it."
            )
    return found


BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
