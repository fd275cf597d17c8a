"""No sandbox at all: a plain process of this machine, for programs that somebody has read.

It keeps the limits on one process that every POSIX system knows, looks after the sum of all, and
ends everything that it can find at the end. It promises nothing else: programs read and write what
the caller may, reach the network, and a fork bomb may win. Hence its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from palaestra.core.errors import InputError
from palaestra.safety.folder import Folder
from palaestra.safety.local import HostSandbox, environment
from palaestra.safety.running import Launch, Running
from palaestra.safety.sandbox import Limits, Settings
from palaestra.safety.session import SessionRunning, limited


class PlainSandbox(HostSandbox):
    """A temporary folder and plain processes; the work folder is not at `/work`."""

    name = "unsafe"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        if settings.hosts:
            raise InputError(
                "The unsafe sandbox cannot keep programs from any host, so none can be granted; "
                "leave `hosts` out, or use the bubblewrap one."
            )
        for mount in settings.mounts:
            if str(mount.outside) != mount.inside:
                raise InputError(
                    f"The unsafe sandbox cannot show {mount.outside} as '{mount.inside}': its "
                    "programs see this machine as it is; use the bubblewrap one."
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
            "TMPDIR": str(self._place / "tmp"),
            "LANG": "C.UTF-8",
        }
        variables = environment(self.settings, base)
        launch = Launch(limited(limits, command), variables, self.folder.path)
        return SessionRunning(launch, limits, input, Folder(self._place))
