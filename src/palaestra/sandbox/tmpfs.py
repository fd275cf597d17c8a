"""The tmpfs of a sandbox's folders: a file system in memory with an enforced size.

It is mounted in a private mount namespace, invisible to the rest of this machine. A waiting process
holds the namespace; the kernel frees everything when that process ends, which it does when this
process ends.
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
from palaestra.sandbox.base import Limits
from palaestra.sandbox.program_run import Launch, spawn

PROGRAMS = ("unshare", "nsenter", "prlimit", "setpriv", "mount")
"""Programs of util-linux, which every Linux has."""
_FILE = 4096  # bytes of the size limit per inode
_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_MAKE = (
    'mount -t tmpfs -o "$1",mode=755,nosuid,nodev palaestra "$2" && cd "$2" '
    "&& mkdir work tmp shm etc hosts && chmod 1777 tmp shm && echo $$ && exec cat >/dev/null"
)


class Tmpfs:
    """The folders `work`, `tmp`, `shm`, `etc` and `hosts`, which share one size limit."""

    def __init__(self, limits: Limits, privileged: bool) -> None:
        """Mount it; `privileged` processes may mount without a user namespace."""
        self.privileged = privileged
        self.path = Path(tempfile.mkdtemp(prefix="palaestra-"))
        self._size = limits.disk_bytes
        space = [] if privileged else ["--user", "--map-root-user"]
        shell = ["sh", "-c", _MAKE, "sh", _size(self._size), str(self.path)]
        arguments = ["unshare", *space, "--mount", "--propagation", "slave", *shell]
        self._holder = spawn(Launch(arguments, _PATH))
        self._end = weakref.finalize(self, _discard, self._holder, self.path, os.getpid())
        assert self._holder.stdout is not None and self._holder.stderr is not None
        pid = self._holder.stdout.readline().strip()
        if not pid:
            reason = self._holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise InfrastructureFault("sandbox", f"its folder could not be made: {reason}")
        self.pid = int(pid)

    def outside(self, name: str) -> Path:
        """Return the path of one of the folders for this process."""
        return Path(f"/proc/{self.pid}/root{self.path}/{name}")

    def enter(self) -> list[str]:
        """Return the prefix of a command that is to see these folders at `path`."""
        space = [] if self.privileged else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self.pid), *space, "--mount", "--"]

    def resize(self, size: int) -> None:
        """Change its size to that many bytes; its contents stay."""
        if size == self._size:
            return
        command = [*self.enter(), "mount", "-o", f"remount,{_size(size)}", str(self.path)]
        subprocess.run(command, check=False, capture_output=True, env=_PATH)
        self._size = size

    def full(self, limit: int) -> bool:
        """Return whether it is full, or holds that many bytes."""
        try:
            found = os.statvfs(self.outside("work"))
        except OSError:
            return False
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return used + found.f_frsize > min(limit, self._size) or found.f_ffree == 0

    def close(self) -> None:
        """Unmount and free it."""
        self._end()


def _size(size: int) -> str:
    return f"size={size},nr_inodes={max(256, size // _FILE)}"


def _discard(holder: subprocess.Popen[bytes], path: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork: the folders are its parent's
    holder.kill()
    holder.wait()
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(OSError):
        path.rmdir()


def missing_programs() -> list[str]:
    """Return which of `PROGRAMS` are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH["PATH"]) is None]
