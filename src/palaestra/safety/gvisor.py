"""Sandboxes with a kernel of their own: gVisor (`runsc`) answers every system call itself.

Stronger walls than namespaces, as this machine's kernel is hardly asked anything; slower to start
and at system calls. The folders are those of the bubblewrap sandbox, of the same limited size. Of
processes, those of this machine that carry the guest's are counted, which are somewhat more.
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
from palaestra.safety import usage
from palaestra.safety.folder import Folder
from palaestra.safety.local import BASE, LocalSandbox, environment
from palaestra.safety.mounts import checked
from palaestra.safety.place import Place, missing_programs
from palaestra.safety.running import Launch, Running
from palaestra.safety.sandbox import WORK, Limits, Settings
from palaestra.safety.session import SessionRunning
from palaestra.safety.system import USERS, privileged, system_folders
from palaestra.safety.usage import Use

_OWN = 8  # processes of runsc itself, and what its kernel keeps ready
_OVERHEAD = 256 * 2**20  # bytes that runsc and its kernel may use for themselves


class GvisorSandbox(LocalSandbox):
    """Needs `runsc`, and root."""

    name = "gvisor"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        if settings.hosts:
            raise InputError(
                "The gvisor sandbox reaches no host, so none can be granted; leave `hosts` out, or "
                "use the bubblewrap one."
            )
        self._mounts = checked(settings.mounts, foreign=True)
        self._base = environment(settings, BASE)
        self._place = Place(settings.limits, privileged=True)
        self._state = Path(tempfile.mkdtemp(prefix="palaestra-gvisor-"))
        self._user = random.SystemRandom().choice(USERS)
        self.folder = Folder(self._place.outside("work"), self._user)
        self.temporary = tuple(Folder(self._place.outside(name)) for name in ("tmp", "shm"))
        os.chown(self.folder.path, self._user, self._user)

    @classmethod
    def missing(cls) -> str | None:
        return _missing()

    def close(self) -> None:
        super().close()
        self._place.close()
        shutil.rmtree(self._state, ignore_errors=True)

    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        self._place.resize(limits.disk_bytes)
        name = uuid.uuid4().hex
        bundle = self._state / name
        (bundle / "root").mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(self._config(command, limits)))
        arguments = [
            *self._place.enter(), "runsc", "--root", str(self._state / "state"), "--network=none",
            "--ignore-cgroups", "--file-access=shared", "--host-uds=none", "run",
            "--bundle", str(bundle), name,
        ]  # fmt: skip
        return _Guest(Launch(arguments, {"PATH": os.defpath}), limits, input, self._place)

    def _config(self, command: Sequence[str], limits: Limits) -> dict[str, Any]:
        """What runsc is to run, as the runtime specification of the Open Containers wants it."""
        at = self._place.path
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
    def __init__(self, launch: Launch, limits: Limits, input: bytes | None, place: Place) -> None:
        self._walled = place
        super().__init__(launch, limits, input, Folder(place.outside("work")))

    def look(self) -> Use:
        members = self._members()
        seen = usage.use(members)
        memory = _guest_memory(members) + max(0, seen.memory - _OVERHEAD)
        return Use(memory, seen.cpu_seconds, max(0, seen.processes - _OWN))

    def memory(self) -> int:
        members = self._members()
        return _guest_memory(members) + max(0, usage.exact_memory(members) - _OVERHEAD)

    def full(self) -> bool:
        return self._walled.full(self.limits.disk_bytes)


def _guest_memory(members: Iterable[int]) -> int:
    """Bytes of the file that is the guest's memory; no process need have it mapped."""
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
        return "It needs root; use the bubblewrap one."
    lacking = missing_programs()
    if lacking:
        return f"{', '.join(lacking)} of util-linux is not installed: apt install util-linux mount."
    reason = GvisorSandbox._trouble()
    if reason is None:
        return None
    return f"runsc does not run here ({reason.splitlines()[-1]}); see `runsc --debug do true`."
