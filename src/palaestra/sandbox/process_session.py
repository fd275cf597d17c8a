"""Programs as a session of processes, found by parent, session and a mark in the environment.

This suffices for programs that do not try to escape, and for the supervisors of other back ends.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from palaestra.sandbox import process_usage
from palaestra.sandbox.base import Limits
from palaestra.sandbox.process_usage import Usage
from palaestra.sandbox.program_run import LAST, Launch, Running, data_limit
from palaestra.sandbox.work_folder import Folder

MARK = "PALAESTRA_SANDBOX"


class SessionRunning(Running):
    """A run of a program without isolation; `folder` is the one whose size is limited."""

    def __init__(self, launch: Launch, limits: Limits, input: bytes | None, folder: Folder) -> None:
        self._folder = folder
        mark = uuid.uuid4().hex
        self._mark = f"{MARK}={mark}"
        marked = replace(launch, environment={**launch.environment, MARK: mark})
        super().__init__(marked, limits, input)

    def look(self) -> Usage:
        return process_usage.usage(self._members())

    def memory(self) -> int:
        return process_usage.exact_memory(self._members())

    def full(self) -> bool:
        return self._folder.used() > self.limits.disk_bytes

    def kill(self) -> None:
        until = time.monotonic() + LAST
        alive: list[int] = []
        # At least two rounds: the first may see a process between fork and exec.
        for number in range(1000):
            # A process that is about to end has lost its mark.
            found = {*self._members(), *process_usage.marked(self._mark), *alive}
            self.found |= found - {self.process.pid}
            alive = [pid for pid in found if _end(pid)]
            self.process.poll()
            if (number and not alive) or time.monotonic() > until:
                return
            if alive:
                time.sleep(0.001)

    def _members(self) -> set[int]:
        leader = self.process.pid
        if self.process.returncode is None:
            return {*process_usage.tree(leader), *process_usage.session(leader)}
        return {*process_usage.session(leader)} - {leader}  # its pid may have been reused


def _end(pid: int) -> bool:
    """Kill a process; return false if it was not alive."""
    try:
        os.kill(pid, signal.SIGKILL)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except OSError:
        return sys.platform != "linux"


def limited(limits: Limits, command: Sequence[str]) -> list[str]:
    """Return a shell command that sets the limits of one process and execs the program."""
    seconds = max(1, math.ceil(limits.cpu_seconds))
    parts = [
        "ulimit -c 0",
        f"ulimit -S -t {seconds}",  # SIGXCPU at the soft limit, SIGKILL at the hard one
        f"ulimit -H -t {seconds + 1}",
        f"ulimit -f {max(1, limits.file_bytes // 512)}",
        f"ulimit -d {max(1, data_limit(limits) // 1024)}",
        'exec "$@"',
    ]
    return ["/bin/sh", "-c", "; ".join(parts), "sh", *command]
