"""What the system reports about a process: memory, processor time, and whether it is stopped."""

from __future__ import annotations

from pathlib import Path

import psutil

EXITING = 0x4  # PF_EXITING of Linux, among a process's flags


def peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process, else the present one, else 0."""
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


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if unknown."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def family_bytes(pid: int, enough: int) -> int:
    """Return the memory of a process and of all that it started; 0 if unknown.

    What several processes share, as those of a browser do, counts once: each has its proportional
    share. Finding that takes long, so it is done only if all that is resident, with what is shared
    counted several times, is more than `enough`.
    """
    try:
        process = psutil.Process(pid)
        members = (process, *process.children(recursive=True))
        resident = sum(int(one.memory_info().rss) for one in members)
        if resident <= enough:
            return resident
        return sum(map(_share, members))
    except psutil.Error:
        return 0


def _share(process: psutil.Process) -> int:
    """Return the proportional share of memory of a process (Linux), else what is resident."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError):
        return int(process.memory_info().rss)


def processor_seconds(pid: int) -> float:
    """Return the seconds that a process and its children computed or queued for a processor.

    Queued time counts where the system reports it (Linux), because a starved process does not wait
    for anything of its own. 0 if unknown.
    """
    try:
        process = psutil.Process(pid)
        family = (process, *process.children(recursive=True))
        times = [one.cpu_times() for one in family]
    except psutil.Error:
        return 0.0
    queued = sum(
        _queued(file)
        for one in family
        for file in Path(f"/proc/{one.pid}/task").glob("*/schedstat")
    )
    return float(sum(time.user + time.system for time in times)) + queued


def queued_seconds(pid: int) -> float:
    """Return how long the main thread of a process was ready to run without a processor; or 0."""
    return _queued(Path(f"/proc/{pid}/task/{pid}/schedstat"))


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal and cannot continue; False if unknown."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def is_ending(pid: int) -> bool:
    """Return whether a process is ending, or has ended.

    Its parent may learn of that much later where processors are scarce. One that is no zombie yet
    is recognised on Linux only.
    """
    try:
        if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return True
        # After the name, which may hold brackets: state, four ids, terminal, its group, flags.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & EXITING)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return True
    except (psutil.Error, OSError, ValueError, IndexError):
        return False


def _queued(schedstat: Path) -> float:
    """Return the seconds in which a thread waited for a processor."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0  # the thread has ended, or the system does not report it
