"""Sandboxes of Linux namespaces, created by bubblewrap (`bwrap`).

Programs have their own namespaces for processes, network, mounts, host name, System V objects and
users. System folders are read-only; the rest of this machine's files are not visible. System calls
pass a filter. Limits hold for each process (rlimits) and for all together (a control group if one
can be created, and a poll of the sum every few milliseconds). Started by root, programs run as a
user that exists nowhere else; started by another user, as that user in a user namespace.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from palaestra.sandbox import process_usage, relay, seccomp
from palaestra.sandbox.base import WORK, Ended, Limits, Settings
from palaestra.sandbox.cgroups import ControlGroup
from palaestra.sandbox.linux import USERS, privileged, system_folders
from palaestra.sandbox.local_process import BASE, LocalSandbox, environment
from palaestra.sandbox.mounts import checked
from palaestra.sandbox.process_usage import Usage
from palaestra.sandbox.program_run import LAST, Launch, Running, data_limit
from palaestra.sandbox.tmpfs import Tmpfs, missing_programs
from palaestra.sandbox.work_folder import Folder

OPEN_FILES = 1024
_OWN = 2  # processes of bwrap itself: the waiting one, and the first inside
_NAMESPACES = ("pid", "net", "ipc", "uts", "cgroup-try")
_CONFIGURED = ("alternatives", "ld.so.cache", "localtime", "ssl/certs", "ssl/openssl.cnf")


class BubblewrapSandbox(LocalSandbox):
    """The default sandbox on Linux."""

    name = "bubblewrap"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        self._mounts = checked(settings.mounts, privileged())
        self._base = environment(settings, BASE)
        for host in settings.hosts:
            relay.address(host)
        self._tmpfs = Tmpfs(settings.limits, privileged())
        self._user = random.SystemRandom().choice(USERS) if privileged() else 1000
        owner = self._user if privileged() else None
        self.folder = Folder(self._tmpfs.outside("work"), owner)
        self.temporary = tuple(Folder(self._tmpfs.outside(name)) for name in ("tmp", "shm"))
        if owner is not None:
            os.chown(self.folder.path, owner, owner)
        self._describe()
        self._relay = relay.Relay(self._tmpfs.outside("hosts"), settings.hosts)

    @classmethod
    def missing(cls) -> str | None:
        return _missing()

    def close(self) -> None:
        super().close()
        self._relay.close()
        self._tmpfs.close()

    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        self._tmpfs.resize(limits.disk_bytes)
        info, info_end = os.pipe()
        rules, options = _readable(seccomp.program()), _readable(_null_terminated(self._options()))
        arguments = [
            *self._tmpfs.enter(), "bwrap", "--args", str(options), "--info-fd", str(info_end),
            "--seccomp", str(rules), "--", *self._user_command(), *_limited(limits), *command,
        ]  # fmt: skip
        group = ControlGroup.make(limits)
        if group is not None:
            join = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
            arguments = ["/bin/sh", "-c", join, str(group.folder), *arguments]
        launch = Launch(arguments, {"PATH": os.defpath}, descriptors=(info_end, rules, options))
        return _BubblewrapRun(launch, limits, input, self._tmpfs, group, info)

    def _options(self) -> list[str]:
        """Return the options of bwrap; later ones override earlier ones."""
        at = str(self._tmpfs.path)
        found = ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
        found += [f"--unshare-{name}" for name in _NAMESPACES]
        if not self._tmpfs.privileged:
            found += ["--unshare-user", "--uid", str(self._user), "--gid", str(self._user)]
        variables = dict(self._base)
        if self.settings.hosts:
            variables[relay.VARIABLE] = relay.variable(self.settings.hosts)
        for name, value in variables.items():
            found += ["--setenv", name, value]
        found += ["--ro-bind", "/usr", "/usr", *_system_options()]
        for folder in ("/etc", "/etc/ssl", "/run"):  # created by bwrap, only root could read them
            found += ["--perms", "0755", "--dir", folder]
        for name in ("passwd", "group", "hosts"):
            found += ["--ro-bind", f"{at}/etc/{name}", f"/etc/{name}"]
        for name in _CONFIGURED:
            found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        found += ["--proc", "/proc", "--dev", "/dev", "--bind", f"{at}/shm", "/dev/shm"]
        found += ["--remount-ro", "/dev", "--bind", f"{at}/tmp", "/tmp"]
        found += ["--bind", f"{at}/work", WORK, "--ro-bind", f"{at}/hosts", relay.INSIDE]
        for mount in self._mounts:
            for parent in reversed(PurePosixPath(mount.inside).parents[:-1]):
                found += ["--perms", "0755", "--dir", str(parent)]
            kind = "--bind" if mount.writable else "--ro-bind"
            found += [kind, str(mount.outside), mount.inside]
        found += ["--remount-ro", "/", "--chdir", WORK, "--cap-drop", "ALL"]
        if self._tmpfs.privileged:  # for `setpriv`, which loses them again
            found += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return found

    def _user_command(self) -> list[str]:
        """Return the command prefix that changes to the sandbox's own user; empty without root."""
        if not self._tmpfs.privileged:
            return []
        user = str(self._user)
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]

    def _describe(self) -> None:
        folder = self._tmpfs.outside("etc")
        user = self._user
        (folder / "passwd").write_text(f"sandbox:x:{user}:{user}::{WORK}:/bin/sh\n")
        (folder / "group").write_text(f"sandbox:x:{user}:\n")
        (folder / "hosts").write_text("127.0.0.1 localhost sandbox\n::1 localhost\n")


class _BubblewrapRun(Running):
    def __init__(
        self,
        launch: Launch,
        limits: Limits,
        input: bytes | None,
        tmpfs: Tmpfs,
        group: ControlGroup | None,
        info: int,
    ) -> None:
        self._tmpfs, self._group, self._info = tmpfs, group, info
        self._first: int | None = None  # descriptor of the first process inside
        self._asked = False
        super().__init__(launch, limits, input)

    def look(self) -> Usage:
        self._find_first_process(0.0)
        seen = process_usage.usage(process_usage.tree(self.process.pid))
        cpu = self._group.cpu_seconds() if self._group is not None else seen.cpu_seconds
        return Usage(seen.memory, cpu, max(0, seen.processes - _OWN))

    def memory(self) -> int:
        return process_usage.exact_memory(process_usage.tree(self.process.pid))

    def full(self) -> bool:
        return self._tmpfs.full(self.limits.disk_bytes)

    def kill(self) -> None:
        if self._group is not None:
            self._group.kill()
        self._find_first_process(LAST)
        if self._first is not None:
            # All processes of its namespace end before the first process does.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            select.select([self._first], [], [], LAST)
        elif self.process.poll() is None:
            self.process.kill()

    def _explain(self, code: int) -> tuple[Ended, int | None]:
        if self._group is not None and self._group.memory_ran_out():
            return Ended.MEMORY, None
        return super()._explain(code)

    def _close(self) -> None:
        super()._close()
        if self._group is not None:
            self._group.remove()
        for descriptor in (self._info, self._first):
            if descriptor is not None:
                os.close(descriptor)

    def _find_first_process(self, seconds: float) -> None:
        """Open the first process inside, as soon as bwrap reports its pid."""
        if self._asked or not select.select([self._info], [], [], seconds)[0]:
            return
        self._asked = True
        report = b""
        until = time.monotonic() + LAST
        while not report.rstrip().endswith(b"}") and time.monotonic() < until:
            more = os.read(self._info, 4096)
            if not more:
                break
            report += more
        with contextlib.suppress(ValueError, KeyError, OSError):
            pid = int(json.loads(report)["child-pid"])
            self._first = os.pidfd_open(pid)
            self.found.add(pid)


def _limited(limits: Limits) -> list[str]:
    cpu = max(1, math.ceil(limits.cpu_seconds))
    return [
        "prlimit", "--core=0", f"--cpu={cpu}:{cpu + 1}", f"--fsize={limits.file_bytes}",
        f"--data={data_limit(limits)}", f"--nofile={OPEN_FILES}",
        f"--nproc={limits.processes + 1}", "--memlock=0", "--msgqueue=0", "--",
    ]  # fmt: skip


def _system_options() -> list[str]:
    found = []
    for path in system_folders():
        if path.is_symlink():
            found += ["--symlink", os.readlink(path), str(path)]
        else:
            found += ["--ro-bind", str(path), str(path)]
    return found


def _null_terminated(options: Sequence[str]) -> bytes:
    return b"".join(option.encode() + b"\0" for option in options)


def _readable(data: bytes) -> int:
    """Return a descriptor from which bwrap reads this, which keeps it out of process listings."""
    descriptor = os.memfd_create("bwrap")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


@lru_cache(maxsize=1)
def _missing() -> str | None:
    if sys.platform != "linux":
        return "It needs Linux."
    if not seccomp.supported():
        return f"Its filter of system calls knows x86_64 and aarch64, not {os.uname().machine}."
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; install it with: apt install bubblewrap."
    lacking = missing_programs()
    if lacking:
        return f"{', '.join(lacking)} of util-linux is not installed: apt install util-linux mount."
    reason = BubblewrapSandbox._trouble()
    if reason is None:
        return None
    return (
        f"This machine forbids namespaces ({reason.splitlines()[-1]}); "
        "allow them with sysctl kernel.apparmor_restrict_unprivileged_userns=0 or "
        "kernel.unprivileged_userns_clone=1, and in a container with --privileged."
    )
