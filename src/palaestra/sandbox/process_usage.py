"""Resource usage of a process tree, read from the kernel's accounting."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of several processes together."""

    memory: int  # bytes; shared pages may count once per process
    cpu_seconds: float  # including children that have ended
    processes: int


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    if not PROC.exists():
        return _tree_elsewhere(pid)
    found, waiting = [], [pid]
    while waiting:
        at = waiting.pop()
        found.append(at)
        try:
            for task in os.listdir(f"/proc/{at}/task"):
                with open(f"/proc/{at}/task/{task}/children", "rb") as file:
                    waiting.extend(int(child) for child in file.read().split())
        except OSError:
            continue  # it has just ended
    return found


def session(leader: int) -> list[int]:
    """Return the processes of a session, orphans included; empty without /proc."""
    if not PROC.exists():
        return []
    found = []
    for name in os.listdir("/proc"):
        fields = stat(int(name)) if name.isdigit() else None
        if fields is not None and int(fields[3]) == leader:
            found.append(int(name))
    return found


def marked(mark: str) -> list[int]:
    """Return the processes that were started with this text in their environment."""
    wanted = mark.encode()
    found = []
    for name in os.listdir("/proc") if PROC.exists() else []:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def usage(pids: Iterable[int]) -> Usage:
    """Return the current usage of these processes; ended ones count nothing."""
    memory, cpu, alive = 0, 0.0, 0
    for pid in pids:
        fields = stat(pid) if PROC.exists() else _stat_elsewhere(pid)
        if fields is None:
            continue
        alive += 1
        memory += int(fields[21]) * _PAGE
        cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS
    return Usage(memory, cpu, alive)


def exact_memory(pids: Iterable[int]) -> int:
    """Return the memory in bytes, each shared page counted once; slower than `usage`."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except OSError:
            total += usage([pid]).memory
    return total


def stat(pid: int | str) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third on; None without such a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _tree_elsewhere(pid: int) -> list[int]:
    import psutil

    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def _stat_elsewhere(pid: int) -> list[bytes] | None:
    import psutil

    try:
        process = psutil.Process(pid)
        times, resident = process.cpu_times(), process.memory_info().rss
    except psutil.Error:
        return None
    ticks = [times.user, times.system, 0.0, 0.0]
    fields = [b"0"] * 22
    fields[11:15] = [str(int(value * _TICKS)).encode() for value in ticks]
    fields[21] = str(resident // _PAGE).encode()
    return fields
