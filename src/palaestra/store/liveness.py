"""Whether a process is working on a run, and whether the run has changed.

Nothing here takes the run's lock, since even for a moment that would block another process.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from palaestra.store.lock import Holder

Mark = tuple[tuple[int, int, int], ...]
"""If two marks are equal, nothing was written in between."""


def worker(run: Path) -> int | None:
    """Return the pid of the process that holds the lock of the run in folder `run`, or None.

    The lock's file names it, also after a crash, and another process may reuse its pid;
    a process that started after the file was written does not count, nor does one on another
    machine, which cannot be seen.
    """
    file = Path(run) / "run.lock"
    holder = Holder.of(file)
    if holder is None or holder.elsewhere:
        return None
    try:
        process = psutil.Process(holder.pid)
        return process.pid if process.create_time() <= file.stat().st_mtime + 1 else None
    except (OSError, ValueError, OverflowError, psutil.Error):
        return None


def mark(run: Path) -> Mark:
    """Return a mark of the database, its journal, the notes and the report of the run in `run`."""
    found = []
    for name in ("run.sqlite", "run.sqlite-wal", "notes.sqlite", "report.json"):
        try:
            about = (Path(run) / name).stat()
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
