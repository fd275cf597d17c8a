"""Whether a run is being worked on, and whether it has changed: seen from outside.

Nothing here takes the run's lock: even for a moment it would turn away the process that wants it.
"""

from __future__ import annotations

from pathlib import Path

import psutil

Mark = tuple[tuple[int, int, int], ...]
"""Equal marks: nothing was written in between."""


def worker(run: Path) -> int | None:
    """The process that holds the lock of the run in folder `run`, or None.

    The lock's file names it. After a crash the name stays, and may by now be another process's:
    one that started after the file was written is not meant.
    """
    file = Path(run) / "run.lock"
    try:
        process = psutil.Process(int(file.read_text().strip()))
        return process.pid if process.create_time() <= file.stat().st_mtime + 1 else None
    except (OSError, ValueError, OverflowError, psutil.Error):
        return None


def mark(run: Path) -> Mark:
    """A mark of what is in the database, its journal and the notes of the run in folder `run`."""
    found = []
    for name in ("run.sqlite", "run.sqlite-wal", "notes.sqlite", "report.json"):
        try:
            about = (Path(run) / name).stat()
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
