"""What the system tells of a process: memory and processor time."""

from __future__ import annotations

from pathlib import Path

import psutil


def peak_bytes(pid: int) -> int:
    """Peak resident memory of a process, or the present one, or 0 where neither is told."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def resident_bytes(pid: int, *, family: bool = False) -> int:
    """Resident memory of a process, and with `family` of those that it started; 0 if not told."""
    try:
        process = psutil.Process(pid)
        members = (process, *(process.children(recursive=True) if family else ()))
        return sum(int(one.memory_info().rss) for one in members)
    except psutil.Error:
        return 0


def processor_seconds(pid: int) -> float:
    """Seconds that a process and those that it started have computed, or queued for a processor.

    The latter where the system tells it (Linux): what is starved by others does not wait for
    anything of its own. 0 where nothing is told.
    """
    try:
        process = psutil.Process(pid)
        family = (process, *process.children(recursive=True))
        times = [one.cpu_times() for one in family]
    except psutil.Error:
        return 0.0
    queued = sum(_queued_seconds(one.pid) for one in family)
    return float(sum(time.user + time.system for time in times)) + queued


def _queued_seconds(pid: int) -> float:
    """For how long the threads of a process were ready to run and had no processor."""
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])  # nanoseconds
        except (OSError, ValueError, IndexError):
            continue  # the thread has ended, or the system does not tell
    return total / 1e9
