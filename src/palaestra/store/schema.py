"""The schema of a run's database: its tables and format, how it is created and opened.

A new file gets its name once it is complete. A file without tables is therefore never new: it was
emptied.
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
from palaestra.store import blobs, events, migration
from palaestra.store.damage import Connection, damaged
from palaestra.store.disk import is_full, storage_full, write_error

FORMAT = 3
"""The version of the stored format; it changes whenever older code could not read it."""

TABLES = ("meta", "record", "event", "blob", "episode", "metric", "document")
_SCHEMA = f"""{events.SCHEMA}{blobs.SCHEMA}
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
    """What a commit survives."""

    NORMAL = "normal"
    """The death of the process; the system writes to the disk soon after, in order."""
    FULL = "full"
    """A power cut as well: a commit waits for the disk."""


def about(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the metadata: `format`, `palaestra`, `created`, `durability`, `epoch`."""
    return dict(connection.execute("SELECT name, value FROM meta"))


def epoch_of(connection: sqlite3.Connection) -> int:
    """Return how often the database was opened for writing; 0 before any count of it."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    return 0 if row is None else int(row[0])


def create(path: Path, durability: Durability) -> None:
    """Create an empty database under another name, and rename it once it is complete.

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


def connect(path: Path, mode: str, *, any_thread: bool = False) -> Connection:
    """Open the file in that mode of SQLite's URIs; use it in this thread, or in any one."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=10.0,  # seconds to wait for another process's transaction
        isolation_level=None,
        check_same_thread=not any_thread,
        factory=Connection,
    )
    connection.file = path
    return connection


def reading(path: Path) -> str:
    """Return the mode for opening a database read-only.

    SQLite keeps a file beside the database even for readers. If the folder is not writable (another
    user's run, a read-only disk) and no process writes, the mode needs no such file.
    """
    writing = path.with_name(f"{path.name}-wal").exists()
    return "mode=ro" if writing or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"


def bring_up(path: Path, connection: Connection) -> None:
    """Migrate the database of a run if it has the previous format."""
    if "meta" in _tables(connection) and about(connection).get("format") == migration.BEFORE:
        migration.migrate(path, connection, str(FORMAT))


def check_tables(path: Path, connection: Connection) -> None:
    """Check that all tables exist, in our format; their contents are not checked.

    Raises:
        DamagedRun: some are missing.
        RunVersionMismatch: it has another format.
    """
    found = _tables(connection)
    if not found:
        raise damaged(path, "it is empty")
    lacking = sorted(set(TABLES) - found)
    if "meta" not in lacking:
        metadata = about(connection)
        check_format(path, metadata.get("format"), metadata.get("palaestra"))
    if lacking:
        raise damaged(path, f"it lacks the table {', '.join(lacking)}")


def _tables(connection: Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows.fetchall()}


def check_format(path: Path, format: str | None, writer: str | None) -> None:
    """Raise RunVersionMismatch unless `format` is ours; `writer` is the palaestra that wrote it."""
    if format == str(FORMAT):
        return
    if format == migration.BEFORE:
        folder = path if path.is_dir() else path.parent
        raise RunVersionMismatch(
            f"{path} has run format {format}, the one before format {FORMAT}, which palaestra "
            f"{__version__} reads. Migrate it with `palaestra doctor {folder} --migrate`, or "
            "resume the run."
        )
    raise RunVersionMismatch(
        f"{path} has run format {format}, and palaestra {__version__} reads format {FORMAT}. "
        f"Use the version that wrote it (`pip install palaestra=={writer}`), or start a new run."
    )


def raise_if_full(path: Path, error: sqlite3.OperationalError) -> None:
    """Raise StorageFull if a full disk caused `error`: SQLite reports only some causes itself."""
    code = error.sqlite_errorcode & 0xFF
    cause: Exception | None = error if code == sqlite3.SQLITE_FULL else None
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        cause = write_error(path.with_name(f"{path.name}-wal"))
    if cause is error or (cause is not None and is_full(cause)):
        raise storage_full("The record of the run", path.parent, cause) from error
