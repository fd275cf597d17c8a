"""Taking a run over from a process that is frozen, or on a machine that cannot be reached.

SQLite's locks do not help there: a frozen writer may hold them, and over a network file system its
memory may not show what others wrote. So a copy replaces the database, with all that was committed.
The process that has the old file open writes nothing into the run any more, and notices it at its
next write (see `Database.check_present`).
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from contextlib import closing
from pathlib import Path

from palaestra.core.errors import RunLocked, RunTakenOver
from palaestra.store.damage import damaged
from palaestra.store.disk import is_full, storage_full, sync
from palaestra.store.lock import Holder
from palaestra.store.schema import connect

QUIET = 1.0  # seconds without a write after which a process counts as frozen


def taken_over(run: Path) -> RunTakenOver:
    """Return the error to raise in a process that lost its run to another one."""
    holder = Holder.of(run / "run.lock")
    return RunTakenOver(
        f"The run {run} was taken over by {holder or 'another process'}, so this one stops; what "
        "was recorded before is kept, and nothing that this process still does is recorded."
    )


def check_quiet(file: Path) -> None:
    """Raise RunLocked if a process writes to the database in `file`; waits for `QUIET` seconds."""
    before = _state(file)
    time.sleep(QUIET)
    if _state(file) != before:
        raise _written(file)


def replace_database(file: Path) -> None:
    """Replace the database in `file` by a copy of it.

    Raises:
        RunLocked: something is still written to it.
        DamagedRun: the copy is damaged; the database is as it was.
        StorageFull: there is no space for the copy.
    """
    fresh = file.with_name(f".{file.name}-{socket.gethostname()}-{os.getpid()}")
    try:
        before = _state(file)
        _copy(file, fresh)
        with closing(connect(fresh, "mode=rw")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if _state(file) != before:
            raise _written(file)
        if found != "ok":
            raise damaged(file, found)
        sync(fresh)
        # If this process dies in between, the old log is applied again to a file that has it.
        fresh.replace(file)
        for part in ("wal", "shm"):
            file.with_name(f"{file.name}-{part}").unlink(missing_ok=True)
        sync(file.parent)
    except OSError as error:
        if is_full(error):
            raise storage_full("A copy of the record", file.parent, error) from error
        raise
    finally:
        for left in file.parent.glob(f"{fresh.name}*"):
            left.unlink()


def _copy(file: Path, fresh: Path) -> None:
    """Copy a database and its log, which do not change meanwhile."""
    shutil.copyfile(file, fresh)
    log = file.with_name(f"{file.name}-wal")
    if log.exists():
        shutil.copyfile(log, fresh.with_name(f"{fresh.name}-wal"))


def _written(file: Path) -> RunLocked:
    return RunLocked(
        f"The run {file.parent} cannot be taken over: something is still written to it; stop the "
        "process that works on it, and try again."
    )


def _state(file: Path) -> list[tuple[int, int]]:
    """Return the sizes and times of a database and its log."""
    files = [file, file.with_name(f"{file.name}-wal")]
    found = [one.stat() for one in files if one.exists()]
    return [(one.st_size, one.st_mtime_ns) for one in found]
