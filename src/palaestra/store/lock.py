"""The lock of a run: one process works on a run folder at a time.

The lock is the kernel's (`flock`), so it is released when its holder dies for any
reason. Worker processes forked by the holder do not keep it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from palaestra.core.errors import RunLocked
from palaestra.store.disk import is_full, storage_full


class RunLock:
    """The lock of a run, held from construction to `release`."""

    def __init__(self, file: Path) -> None:
        """Take the lock on `file`, which is created if needed and contains the holder's pid.

        Raises:
            RunLocked: another process holds it.
            StorageFull: there is no space to write the pid.
        """
        self._descriptor: int | None = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode().strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder else "another process"
            raise RunLocked(
                f"The run {file.parent} is being worked on by {who}; "
                "wait until it ends, or stop it, and try again."
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self._drop()
            if is_full(error):
                raise storage_full("The lock of the run", file.parent, error) from error
            raise
        _held.add(self)

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._descriptor is None:
            return
        _held.discard(self)
        os.ftruncate(self._descriptor, 0)
        self._drop()

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: set[RunLock] = set()


def _drop_all() -> None:
    for lock in _held:
        lock._drop()
    _held.clear()


# A forked child shares its parent's flock, and would hold it after the parent's death.
os.register_at_fork(after_in_child=_drop_all)
