"""Damage: stored bytes that have changed, as opposed to every other failure.

SQLite detects a corrupt page, but not a corrupt cell: text that is not UTF-8, invalid JSON,
truncated numbers. In each case, one error names the run and the remedy (`palaestra doctor`, see
`salvage.py`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
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

Statement = tuple[str, list[Any]]
"""A statement of SQL, with the values of each of its executions."""

_NOT_WRITTEN = ("SELECT", "BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, StopIteration, struct.error)


def damaged(file: Path, reason: object) -> DamagedRun:
    """Return the error to raise when the database in `file` is damaged."""
    detail = " ".join(str(reason).split())[:200].rstrip(".")
    if file.name != NAME:
        return DamagedRun(f"{file} cannot be read as the database of a run: {detail}.")
    return DamagedRun(
        f"The run {file.parent} is damaged: its {NAME} cannot be read ({detail}). "
        f"`palaestra doctor {file.parent}` checks it, and saves what is left into a new run."
    )


def raise_if_damaged(file: Path, error: sqlite3.DatabaseError) -> None:
    """Raise DamagedRun for `file` if damage caused an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    undecodable = code is None and "UTF-8" in str(error)
    if undecodable or (code is not None and (code & 0xFF in _CODES or code in _READS)):
        raise damaged(file, error) from error


@contextmanager
def decoding(file: Path) -> Iterator[None]:
    """Turn errors in parsing stored values into DamagedRun for `file`."""
    try:
        yield
    except _UNREADABLE as error:
        raise damaged(file, f"a record makes no sense: {error}") from error


class Connection(sqlite3.Connection):
    """A connection whose cursors raise DamagedRun for a damaged file."""

    file = Path(NAME)
    written: list[Statement] | None = None
    """Receives what is executed, but for queries, so that a copy can execute it as well."""

    # `try` in each method: one context manager for all would cost as much as a small statement

    def execute(self, statement: str, values: Any = (), /) -> _Cursor:
        if self.written is not None and not statement.lstrip().startswith(_NOT_WRITTEN):
            self.written.append((statement, [values]))
        try:
            return self.cursor(_Cursor).execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise_if_damaged(self.file, error)
            raise

    def executemany(self, statement: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        if self.written is not None:
            rows = list(rows)
            self.written.append((statement, rows))
        try:
            return super().executemany(statement, rows)  # whose cursor nobody reads
        except sqlite3.DatabaseError as error:
            raise_if_damaged(self.file, error)
            raise


class _Cursor(sqlite3.Cursor):
    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except sqlite3.DatabaseError as error:
            self._raise_if_damaged(error)
            raise

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except sqlite3.DatabaseError as error:
            self._raise_if_damaged(error)
            raise

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlite3.DatabaseError as error:
            self._raise_if_damaged(error)
            raise

    def _raise_if_damaged(self, error: sqlite3.DatabaseError) -> None:
        assert isinstance(self.connection, Connection)
        raise_if_damaged(self.connection.file, error)
