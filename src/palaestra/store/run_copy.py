"""A copy of a run's record, which another process keeps in step, usually on another machine.

It begins with a snapshot of the run's database. After that, the statements of each transaction are
executed in the same order. So it is a run folder at any moment, and can be resumed if the run's own
folder is lost with its machine. It has no checkpoints: whoever resumes it learns again from the
recorded episodes. From then on the copy has a higher epoch (see `database.py`), and refuses what
the run's old process may still send.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import OperationalError

from palaestra.core.errors import RunLocked
from palaestra.store.damage import NAME, Statement
from palaestra.store.database import Database
from palaestra.store.lock import RunLock
from palaestra.store.run_folder import write_about
from palaestra.store.schema import about, connect, epoch_of, raise_if_full
from palaestra.store.take_over import taken_over


class RunCopy:
    """The copy of one run; a process at a time has it open."""

    def __init__(self, folder: Path, lock: RunLock) -> None:
        """Use `RunCopy.make`."""
        self.folder, self._file, self._lock = folder, folder / NAME, lock
        self._as_opened = self._file.stat()
        self._connection = connect(self._file, "mode=rw")

    @classmethod
    def make(cls, root: Path, name: str, snapshot: Path) -> RunCopy:
        """Make a copy from a snapshot of the database, in place of an earlier one of the same run.

        Args:
            root: the folder of copies.
            name: of the run. A number is added if another run's copy has that name, or if a
                process still works on it.
            snapshot: a file in `root`; it is moved.

        Raises:
            RunTakenOver: an earlier copy was resumed, so the process of this run is out of date.
        """
        with closing(connect(snapshot, "mode=rw")) as connection:
            created, epoch = about(connection)["created"], epoch_of(connection)
        number = 0
        while True:
            number += 1
            folder = root / (name if number == 1 else f"{name}-{number}")
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock = RunLock(folder / "run.lock")
            except RunLocked:
                continue
            found = _identity(folder / NAME)
            if found is None or found[0] == created:
                break
            lock.release()
        try:
            if found is not None and found[1] > epoch:
                raise taken_over(folder)
            _begin(folder, snapshot)
            return cls(folder, lock)
        except BaseException:
            lock.release()
            raise

    def apply(self, epoch: int, statements: Sequence[Statement]) -> None:
        """Execute the statements of one transaction of the run's process with that epoch.

        Raises:
            RunTakenOver: the copy was resumed; what is written is no part of it.
            StorageFull: the disk is full; nothing is written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if epoch_of(self._connection) != epoch:
                    raise taken_over(self.folder)
                for statement, rows in statements:
                    self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has rolled it back already
                    self._connection.execute("ROLLBACK")
                raise
        except OperationalError as error:
            raise_if_full(self._file, error)
            raise
        if not os.path.samestat(os.stat(self._file), self._as_opened):
            raise taken_over(self.folder)

    def close(self) -> None:
        """Close the files, and release the lock."""
        self._connection.close()
        self._lock.release()


def _identity(file: Path) -> tuple[str, int] | None:
    """Return when the run in a database began, and its epoch; None without a database."""
    if not file.exists():
        return None
    with closing(connect(file, "mode=rw")) as connection:
        return about(connection)["created"], epoch_of(connection)


def _begin(folder: Path, snapshot: Path) -> None:
    """Put a snapshot in the place of the database, whose log must not be applied to it."""
    for part in ("wal", "shm"):
        (folder / f"{NAME}-{part}").unlink(missing_ok=True)
    snapshot.replace(folder / NAME)
    with closing(Database.open(folder / NAME, readonly=True)) as database:
        write_about(folder, database)
