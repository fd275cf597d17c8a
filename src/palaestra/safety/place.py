"""Where a sandbox keeps its folders: a file system in memory, of a size that cannot be exceeded.

It is mounted where nobody else of this machine sees it: a process that only waits holds the mount
namespace, and the kernel frees everything when that process ends, as it does when we end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from palaestra.core.errors import InfrastructureFault
from palaestra.safety.running import Launch, spawn
from palaestra.safety.sandbox import Limits

PROGRAMS = ("unshare", "nsenter", "prlimit", "setpriv", "mount")
"""Of util-linux, which every Linux has."""
_FILE = 4096  # bytes of the limit for which one file or folder may be made
_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_MAKE = (
    'mount -t tmpfs -o "$1",mode=755,nosuid,nodev palaestra "$2" && cd "$2" '
    "&& mkdir work tmp shm etc hosts && chmod 1777 tmp shm && echo $$ && exec cat >/dev/null"
)


class Place:
    """The folders `work`, `tmp`, `shm`, `etc` and `hosts`, which share one size."""

    def __init__(self, limits: Limits, privileged: bool) -> None:
        """Make it; `privileged`: we may mount, and need no user namespace for it."""
        self.privileged = privileged
        self.path = Path(tempfile.mkdtemp(prefix="palaestra-"))
        self._size = limits.disk_bytes
        space = [] if privileged else ["--user", "--map-root-user"]
        shell = ["sh", "-c", _MAKE, "sh", _size(self._size), str(self.path)]
        arguments = ["unshare", *space, "--mount", "--propagation", "slave", *shell]
        self._holder = spawn(Launch(arguments, _PATH))
        self._end = weakref.finalize(self, _discard, self._holder, self.path, os.getpid())
        assert self._holder.stdout is not None and self._holder.stderr is not None
        said = self._holder.stdout.readline().strip()
        if not said:
            reason = self._holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise InfrastructureFault("sandbox", f"its folder could not be made: {reason}")
        self.pid = int(said)

    def outside(self, name: str) -> Path:
        """One of the folders, as this process reaches it."""
        return Path(f"/proc/{self.pid}/root{self.path}/{name}")

    def enter(self) -> list[str]:
        """The words before a command that is to see these folders at `path`."""
        space = [] if self.privileged else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self.pid), *space, "--mount", "--"]

    def resize(self, size: int) -> None:
        """Let it hold that many bytes; what it holds already stays."""
        if size == self._size:
            return
        command = [*self.enter(), "mount", "-o", f"remount,{_size(size)}", str(self.path)]
        subprocess.run(command, check=False, capture_output=True, env=_PATH)
        self._size = size

    def full(self, limit: int) -> bool:
        """Whether nothing more fits into it, or into that many bytes."""
        try:
            found = os.statvfs(self.outside("work"))
        except OSError:
            return False
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return used + found.f_frsize > min(limit, self._size) or found.f_ffree == 0

    def close(self) -> None:
        """Free it."""
        self._end()


def _size(size: int) -> str:
    return f"size={size},nr_inodes={max(256, size // _FILE)}"


def _discard(holder: subprocess.Popen[bytes], path: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork: the place is its parent's
    holder.kill()
    holder.wait()
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(OSError):
        path.rmdir()


def missing_programs() -> list[str]:
    """Which of `PROGRAMS` are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH["PATH"]) is None]
