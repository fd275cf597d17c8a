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
    """Processor time of a process and of those that it started; 0 where it is not told."""
    try:
        process = psutil.Process(pid)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return float(sum(time.user + time.system for time in times))
