"""Control groups (cgroups v2): one group per program, if this machine allows it.

With the controllers `memory` and `pids` the kernel enforces the limits; without them the group
still counts CPU time exactly and kills every process at once. Source: Linux
`Documentation/admin-guide/cgroup-v2.rst`.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from palaestra.sandbox.base import Limits

CONTROLLERS = ("memory", "pids")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One control group; a process joins it by writing its pid into `cgroup.procs`."""

    folder: Path

    @classmethod
    def make(cls, limits: Limits) -> ControlGroup | None:
        """Create a group with these limits; return None if that is not possible."""
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
        # A few more: the back end's own processes are in the group too.
        group._set("pids.max", str(limits.processes + 8))
        return group

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that are or were in it."""
        return self._field("cpu.stat", "usage_usec") / 1e6

    def memory_ran_out(self) -> bool:
        """Return whether the kernel killed it for its memory."""
        return self._field("memory.events", "oom_kill") > 0

    def kill(self) -> None:
        """Kill every process in it, including those that are just being created."""
        self._set("cgroup.kill", "1")

    def remove(self, seconds: float = 1.0) -> None:
        """Remove it, as soon as its processes are gone."""
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
    """Return a group in which groups can be created, preferably one with the controllers."""
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
        return  # busy: a group with its own processes delegates no controllers


def _own() -> Path | None:
    """Return the folder of this process's group; None without cgroups v2."""
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
