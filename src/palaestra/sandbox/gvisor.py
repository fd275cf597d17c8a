"""Sandboxes with their own kernel: gVisor (`runsc`) handles every system call itself.

The isolation is stronger than namespaces, because few calls reach this machine's kernel; starts and
system calls are slower. The folders are those of the bubblewrap sandbox, with the same size limit.
The process count is that of this machine's processes that run the guest's, which is slightly
higher.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.sandbox import process_usage
from palaestra.sandbox.base import WORK, Limits, Settings
from palaestra.sandbox.linux import USERS, privileged, system_folders
from palaestra.sandbox.local_process import BASE, LocalSandbox, environment
from palaestra.sandbox.mounts import checked
from palaestra.sandbox.process_session import SessionRunning
from palaestra.sandbox.process_usage import Usage
from palaestra.sandbox.program_run import Launch, Running
from palaestra.sandbox.tmpfs import Tmpfs, missing_programs
from palaestra.sandbox.work_folder import Folder

_OWN = 8  # processes of runsc itself, and spare ones of its kernel
_OVERHEAD = 256 * 2**20  # bytes that runsc and its kernel may use themselves


class GvisorSandbox(LocalSandbox):
    """A gVisor sandbox; it needs `runsc` and root."""

    name = "gvisor"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        if settings.hosts:
            raise InputError(
                "`hosts` is not possible in the gvisor sandbox, because it has no network; omit "
                "it, or use the bubblewrap sandbox."
            )
        self._mounts = checked(settings.mounts, foreign=True)
        self._base = environment(settings, BASE)
        self._tmpfs = Tmpfs(settings.limits, privileged=True)
        self._state = Path(tempfile.mkdtemp(prefix="palaestra-gvisor-"))
        self._user = random.SystemRandom().choice(USERS)
        self.folder = Folder(self._tmpfs.outside("work"), self._user)
        self.temporary = tuple(Folder(self._tmpfs.outside(name)) for name in ("tmp", "shm"))
        os.chown(self.folder.path, self._user, self._user)

    @classmethod
    def missing(cls) -> str | None:
        return _missing()

    def close(self) -> None:
        super().close()
        self._tmpfs.close()
        shutil.rmtree(self._state, ignore_errors=True)

    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        self._tmpfs.resize(limits.disk_bytes)
        name = uuid.uuid4().hex
        bundle = self._state / name
        (bundle / "root").mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(self._config(command, limits)))
        arguments = [
            *self._tmpfs.enter(), "runsc", "--root", str(self._state / "state"), "--network=none",
            "--ignore-cgroups", "--file-access=shared", "--host-uds=none", "run",
            "--bundle", str(bundle), name,
        ]  # fmt: skip
        return _Guest(Launch(arguments, {"PATH": os.defpath}), limits, input, self._tmpfs)

    def _config(self, command: Sequence[str], limits: Limits) -> dict[str, Any]:
        """Return the container's configuration, as the OCI runtime specification defines it."""
        at = self._tmpfs.path
        cpu = max(1, math.ceil(limits.cpu_seconds))
        numbers = {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": cpu,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": 1024,
            "RLIMIT_NPROC": limits.processes,
        }
        binds = [
            _bind(Path("/usr"), "/usr"),
            *(_bind(path, str(path)) for path in system_folders()),
        ]
        for name in ("alternatives", "ld.so.cache", "localtime", "ssl/certs"):
            if Path("/etc", name).exists():
                binds.append(_bind(Path("/etc", name), f"/etc/{name}"))
        binds += [_bind(at / "work", WORK, True), _bind(at / "tmp", "/tmp", True)]
        binds.append(_bind(at / "shm", "/dev/shm", True))
        binds += [_bind(mount.outside, mount.inside, mount.writable) for mount in self._mounts]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": self._user, "gid": self._user},
                "args": list(command),
                "env": [f"{name}={value}" for name, value in self._base.items()],
                "cwd": WORK,
                "capabilities": {},
                "noNewPrivileges": True,
                "rlimits": [
                    {"type": kind, "soft": number, "hard": number}
                    for kind, number in numbers.items()
                ],
            },
            "root": {"path": "root", "readonly": True},
            "hostname": "sandbox",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                *binds,
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]
            },
        }


class _Guest(SessionRunning):
    def __init__(self, launch: Launch, limits: Limits, input: bytes | None, tmpfs: Tmpfs) -> None:
        self._tmpfs = tmpfs
        super().__init__(launch, limits, input, Folder(tmpfs.outside("work")))

    def look(self) -> Usage:
        members = self._members()
        seen = process_usage.usage(members)
        memory = _guest_memory(members) + max(0, seen.memory - _OVERHEAD)
        return Usage(memory, seen.cpu_seconds, max(0, seen.processes - _OWN))

    def memory(self) -> int:
        members = self._members()
        return _guest_memory(members) + max(0, process_usage.exact_memory(members) - _OVERHEAD)

    def full(self) -> bool:
        return self._tmpfs.full(self.limits.disk_bytes)


def _guest_memory(members: Iterable[int]) -> int:
    """Return the bytes of the guest's memory file; a process may hold it without mapping it."""
    for pid in members:
        folder = f"/proc/{pid}/fd"
        try:
            for name in os.listdir(folder):
                if "memfd:runsc-memory" in os.readlink(f"{folder}/{name}"):
                    return os.stat(f"{folder}/{name}").st_blocks * 512
        except OSError:
            continue
    return 0


def _bind(outside: Path, inside: str, writable: bool = False) -> dict[str, Any]:
    options = ["rbind", "rw" if writable else "ro"]
    return {"destination": inside, "type": "bind", "source": str(outside), "options": options}


@lru_cache(maxsize=1)
def _missing() -> str | None:
    if sys.platform != "linux":
        return "It needs Linux."
    if shutil.which("runsc") is None:
        return "gVisor is not installed; install it with: apt install runsc."
    if not privileged():
        return "It needs root; use the bubblewrap sandbox."
    lacking = missing_programs()
    if lacking:
        return f"{', '.join(lacking)} of util-linux is not installed: apt install util-linux mount."
    reason = GvisorSandbox._trouble()
    if reason is None:
        return None
    return f"runsc does not run here ({reason.splitlines()[-1]}); see `runsc --debug do true`."
