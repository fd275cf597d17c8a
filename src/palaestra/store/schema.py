"""The file of a run's database: its tables and format, how it is made and opened.

A new one gets its name once it is whole. So a file without tables is never new: it was emptied.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from palaestra import __version__
from palaestra.core.errors import RunVersionMismatch
from palaestra.store import events
from palaestra.store.damage import Connection, damaged
from palaestra.store.disk import is_full, refusal, storage_full

FORMAT = 2
"""Version of what is stored; changes whenever older code could not read it."""

TABLES = ("meta", "record", "event", "episode", "metric", "document")
_SCHEMA = f"""{events.SCHEMA}
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS episode (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, "group" INTEGER NOT NULL, member INTEGER NOT NULL,
    task TEXT NOT NULL, agent TEXT NOT NULL, observation TEXT, outcome TEXT NOT NULL,
    usage TEXT NOT NULL, progress TEXT NOT NULL, labels TEXT NOT NULL,
    task_id TEXT NOT NULL, environment TEXT NOT NULL, reward REAL, turns INTEGER NOT NULL,
    sampled_tokens INTEGER NOT NULL, UNIQUE (phase, "group", member));
CREATE TABLE IF NOT EXISTS metric (
    phase TEXT NOT NULL, step INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (phase, step));
CREATE TABLE IF NOT EXISTS document (name TEXT PRIMARY KEY, body TEXT NOT NULL);
"""


class Durability(StrEnum):
    """What a commit outlives."""

    NORMAL = "normal"
    """The process, however it dies; the system writes to the disk soon after, in order."""
    FULL = "full"
    """The machine, too: a commit waits for the disk."""


def about(connection: sqlite3.Connection) -> dict[str, str]:
    """What a database says of itself: `format`, `palaestra`, `created`, `durability`."""
    return dict(connection.execute("SELECT name, value FROM meta"))


def create(path: Path, durability: Durability) -> None:
    """Make an empty database under another name, and give it its own once it is whole.

    Raises:
        StorageFull: there is no space for it.
    """
    values = {
        "format": str(FORMAT),
        "palaestra": __version__,
        "created": datetime.now(UTC).isoformat(),
        "durability": str(durability),
    }
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    partial.unlink(missing_ok=True)
    try:
        with closing(connect(partial, "mode=rwc")) as connection:
            connection.execute("BEGIN")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        partial.rename(path)
    except sqlite3.OperationalError as error:
        raise_if_full(path, error)
        raise
    finally:
        for file in path.parent.glob(f"{partial.name}*"):
            file.unlink()


def connect(path: Path, mode: str) -> Connection:
    """Open the file in that mode, as SQLite's URIs name it."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=10.0,  # seconds to wait for another process's transaction
        isolation_level=None,
        factory=Connection,
    )
    connection.file = path
    return connection


def reading(path: Path) -> str:
    """How to open a database only for reading.

    SQLite keeps a file beside the database even for readers. Where the folder allows none (a
    run of someone else, a read-only disk) and no process writes, it can do without.
    """
    writing = path.with_name(f"{path.name}-wal").exists()
    return "mode=ro" if writing or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"


def check_tables(path: Path, connection: Connection) -> None:
    """Raise unless all tables are there, in our format; their contents are not looked at.

    Raises:
        DamagedRun: some are not there.
        RunVersionMismatch: the format is another one.
    """
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    if not rows:
        raise damaged(path, "it is empty")
    lacking = sorted(set(TABLES) - {name for (name,) in rows})
    if "meta" not in lacking:
        found = about(connection)
        check_format(path, found.get("format"), found.get("palaestra"))
    if lacking:
        raise damaged(path, f"it lacks the table {', '.join(lacking)}")


def check_format(path: Path, format: str | None, writer: str | None) -> None:
    """Raise RunVersionMismatch unless `format` is ours; `writer` is the palaestra that wrote it."""
    if format == str(FORMAT):
        return
    raise RunVersionMismatch(
        f"{path} has run format {format}, and palaestra {__version__} reads format {FORMAT}. "
        f"Use the version that wrote it (`pip install palaestra=={writer}`), or start a new run."
    )


def raise_if_full(path: Path, error: sqlite3.OperationalError) -> None:
    """Raise StorageFull if that is why `error` came: SQLite tells only for some reasons."""
    code = error.sqlite_errorcode & 0xFF
    cause: Exception | None = error if code == sqlite3.SQLITE_FULL else None
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        cause = refusal(path.with_name(f"{path.name}-wal"))
    if cause is error or (cause is not None and is_full(cause)):
        raise storage_full("The record of the run", path.parent, cause) from error
