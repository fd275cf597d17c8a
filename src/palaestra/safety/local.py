"""What every back end shares whose programs are processes of this machine."""

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
from palaestra.safety.folder import Folder
from palaestra.safety.program import Attended
from palaestra.safety.running import Running, run_to_end
from palaestra.safety.sandbox import WORK, Limits, Program, Ran, Sandbox, Settings


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
        """What goes wrong when the simplest program is run in a new one; None: nothing."""
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
        program = Attended(self._begin(self._checked(command), limits, None))
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
            raise InputError("This sandbox is closed; open another one.")
        if not command or isinstance(command, str):
            raise InputError(
                f"The command {command!r} is no list of words; give the program and its arguments, "
                "such as ['python3', 'run.py']."
            )
        for word in command:
            if "\0" in word:
                raise InputError(f"The command word {word!r} holds a zero byte; leave it out.")
        return list(command)


class HostSandbox(LocalSandbox):
    """Its folders lie on this machine's disk, until it is closed or forgotten."""

    def _settle(self) -> None:
        """Make the folders; to be called when the settings have been checked."""
        self._place = Path(tempfile.mkdtemp(prefix=f"palaestra-{self.name}-"))
        self.folder = Folder(self._place / "work")
        self.temporary = (Folder(self._place / "tmp"),)
        for folder in (self.folder, *self.temporary):
            folder.path.mkdir()
        self._end = weakref.finalize(self, _discard, self._place, os.getpid())

    def close(self) -> None:
        super().close()
        self._end()


def _discard(place: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork: the folder is its parent's
        Folder(place).empty()
        shutil.rmtree(place, ignore_errors=True)


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """What programs find in their environment; the caller's own is not inherited.

    Raises:
        InputError: a name or value that cannot be there.
    """
    found = {**base, **settings.environment}
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"The environment variable '{name}' cannot be set for a sandbox: neither a name "
                "with '=' nor a zero byte is possible; rename it."
            )
    return found


BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
