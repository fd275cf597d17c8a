"""Damage: stored bytes that are not what was written, told from every other failure.

SQLite notices a page that makes no sense, but not what a cell holds: text that is no UTF-8, JSON
that is none, numbers that are cut short. Whichever it is, a reader is told in one sentence which
run it was and what to do (`palaestra doctor`, see `salvage.py`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palaestra.core.errors import DamagedRun

NAME = "run.sqlite"
_CODES = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
    }
)
_READS = frozenset(
    {
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_CORRUPTFS,
    }
)

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, StopIteration, struct.error)


def damaged(file: Path, reason: object) -> DamagedRun:
    """The error to raise when the database in `file` is not what was written."""
    said = " ".join(str(reason).split())[:200].rstrip(".")
    if file.name != NAME:
        return DamagedRun(f"{file} cannot be read as the database of a run: {said}.")
    return DamagedRun(
        f"The run {file.parent} is damaged: its {NAME} cannot be read ({said}). "
        f"`palaestra doctor {file.parent}` checks it, and saves what is left into a new run."
    )


@contextmanager
def decoding(file: Path) -> Iterator[None]:
    """Within it, what cannot be understood of stored values is damage to `file`."""
    try:
        yield
    except _UNREADABLE as error:
        raise damaged(file, f"a record makes no sense: {error}") from error


class Connection(sqlite3.Connection):
    """A connection whose cursors raise DamagedRun for a damaged file."""

    file = Path(NAME)

    def execute(self, *arguments: Any) -> _Cursor:
        return self.cursor(_Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> _Cursor:
        return self.cursor(_Cursor).executemany(*arguments)


class _Cursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> _Cursor:
        with self._telling():
            return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> _Cursor:
        with self._telling():
            return super().executemany(*arguments)

    def fetchone(self) -> Any:
        with self._telling():
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with self._telling():
            return super().fetchall()

    def __next__(self) -> Any:
        try:  # not `with`, which would cost more than the row
            return super().__next__()
        except sqlite3.DatabaseError as error:
            self._tell(error)
            raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            self._tell(error)
            raise

    def _tell(self, error: sqlite3.DatabaseError) -> None:
        """Raise DamagedRun if that is why `error` came."""
        code = getattr(error, "sqlite_errorcode", None)
        undecodable = code is None and "UTF-8" in str(error)
        if undecodable or (code is not None and (code & 0xFF in _CODES or code in _READS)):
            assert isinstance(self.connection, Connection)
            raise damaged(self.connection.file, error) from error
