"""A control group of its own for a program, where this machine lets us make one (cgroups v2).

With the controllers `memory` and `pids` the limits are the kernel's; without them the group still
counts processor time exactly and ends every process at once. Source: Linux
`Documentation/admin-guide/cgroup-v2.rst`.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from palaestra.safety.sandbox import Limits

CONTROLLERS = ("memory", "pids")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """One group; a process joins it by writing its number into `cgroup.procs`."""

    folder: Path

    @classmethod
    def make(cls, limits: Limits) -> Group | None:
        """A group with these limits; None where there can be none."""
        parent = delegated()
        if parent is None:
            return None
        folder = parent / f"palaestra-{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError:
            return None
        group = cls(folder)
        group._set("memory.max", str(limits.memory))
        group._set("memory.swap.max", "0")
        group._set("memory.oom.group", "1")
        # A few more: those of the back end itself are in the group too.
        group._set("pids.max", str(limits.processes + 8))
        return group

    def cpu_seconds(self) -> float:
        """Of all processes that are or were in it."""
        return self._field("cpu.stat", "usage_usec") / 1e6

    def memory_ran_out(self) -> bool:
        """Whether the kernel ended it for its memory."""
        return self._field("memory.events", "oom_kill") > 0

    def kill(self) -> None:
        """End every process in it, also those that are just being made."""
        self._set("cgroup.kill", "1")

    def remove(self, seconds: float = 1.0) -> None:
        """Take it away, as soon as its processes are gone."""
        until = time.monotonic() + seconds
        while self.folder.exists():
            try:
                self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    return
                time.sleep(0.001)

    def _set(self, name: str, value: str) -> None:
        try:
            (self.folder / name).write_text(value)
        except OSError:
            return  # a controller that is not delegated has no such file

    def _field(self, name: str, field: str) -> int:
        try:
            for line in (self.folder / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == field:
                    return int(value)
        except OSError:
            pass
        return 0


@lru_cache(maxsize=1)
def delegated() -> Path | None:
    """The group in which we may make groups, one with the controllers if there is any."""
    own = _own()
    if own is None:
        return None
    found = None
    for folder in (own, own.parent):
        probe = folder / f"palaestra-probe-{os.getpid()}"
        try:
            if not os.access(folder / "cgroup.procs", os.W_OK):
                continue
            for controller in CONTROLLERS:
                _enable(folder, controller)
            probe.mkdir()
            has = (probe / "cgroup.controllers").read_text().split()
            probe.rmdir()
        except OSError:
            continue
        if all(controller in has for controller in CONTROLLERS):
            return folder
        found = found or folder
    return found


def _enable(folder: Path, controller: str) -> None:
    try:
        if controller in (folder / "cgroup.controllers").read_text().split():
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return  # busy: a group with processes of its own hands nothing on


def _own() -> Path | None:
    """The folder of the group that this process is in."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    place = next((line.split()[4] for line in mounts if " - cgroup2 " in line), None)
    if path is None or place is None:
        return None
    return Path(place) / path.lstrip("/")
