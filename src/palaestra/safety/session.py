"""Programs as a session of processes: what belongs to one is found by parent, session and mark.

Good enough for programs that do not try to get away, and for the supervisors of other back ends.
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

from palaestra.safety import usage
from palaestra.safety.folder import Folder
from palaestra.safety.running import LAST, Launch, Running, data_limit
from palaestra.safety.sandbox import Limits
from palaestra.safety.usage import Use

MARK = "PALAESTRA_SANDBOX"


class SessionRunning(Running):
    """A program that is not walled in; `place` is the folder whose size is limited."""

    def __init__(self, launch: Launch, limits: Limits, input: bytes | None, place: Folder) -> None:
        self._place = place
        mark = uuid.uuid4().hex
        self._mark = f"{MARK}={mark}"
        marked = replace(launch, environment={**launch.environment, MARK: mark})
        super().__init__(marked, limits, input)

    def look(self) -> Use:
        return usage.use(self._members())

    def memory(self) -> int:
        return usage.exact_memory(self._members())

    def full(self) -> bool:
        return self._place.used() > self.limits.disk_bytes

    def kill(self) -> None:
        until = time.monotonic() + LAST
        alive: list[int] = []
        # Two rounds at least: the first may have met a process between fork and exec.
        for number in range(1000):
            # One that is about to end has lost its mark.
            found = {*self._members(), *usage.marked(self._mark), *alive}
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
            return {*usage.tree(leader), *usage.session(leader)}
        return {*usage.session(leader)} - {leader}  # its number may be another's by now


def _end(pid: int) -> bool:
    """Kill a process; false where there was none that lived."""
    try:
        os.kill(pid, signal.SIGKILL)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except OSError:
        return sys.platform != "linux"


def limited(limits: Limits, command: Sequence[str]) -> list[str]:
    """A shell that sets the limits of one process and becomes the program."""
    seconds = max(1, math.ceil(limits.cpu_seconds))
    parts = [
        "ulimit -c 0",
        f"ulimit -S -t {seconds}",  # the first tells why, the second is for who does not listen
        f"ulimit -H -t {seconds + 1}",
        f"ulimit -f {max(1, limits.file_bytes // 512)}",
        f"ulimit -d {max(1, data_limit(limits) // 1024)}",
        'exec "$@"',
    ]
    return ["/bin/sh", "-c", "; ".join(parts), "sh", *command]
