"""No isolation: a plain process of this machine, for trusted programs.

It sets the limits of one process that every POSIX system has, polls the usage of all, and kills
every process that it can find at the end. It guarantees nothing else: programs can read and write
what the caller can, reach the network, and a fork bomb may succeed. Hence its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from palaestra.core.errors import InputError
from palaestra.sandbox.base import Limits, Settings
from palaestra.sandbox.local_process import HostSandbox, environment
from palaestra.sandbox.process_session import SessionRunning, limited
from palaestra.sandbox.program_run import Launch, Running
from palaestra.sandbox.work_folder import Folder


class PlainSandbox(HostSandbox):
    """A temporary folder and plain processes; the work folder is not at `/work`."""

    name = "unsafe"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        if settings.hosts:
            raise InputError(
                "`hosts` is not possible in the unsafe sandbox, because it does not restrict the "
                "network; omit it, or use the bubblewrap sandbox."
            )
        for mount in settings.mounts:
            if str(mount.outside) != mount.inside:
                raise InputError(
                    f"{mount.outside} cannot be mounted at '{mount.inside}', because the unsafe "
                    "sandbox has no mounts; use the bubblewrap sandbox."
                )
        self._settle()

    @classmethod
    def missing(cls) -> str | None:
        return None if os.name == "posix" else "It needs a POSIX system: Linux or macOS."

    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        home = str(self.folder.path)
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "TMPDIR": str(self._root / "tmp"),
            "LANG": "C.UTF-8",
        }
        variables = environment(self.settings, base)
        launch = Launch(limited(limits, command), variables, self.folder.path)
        return SessionRunning(launch, limits, input, Folder(self._root))
