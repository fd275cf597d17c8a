"""The database of a run: every event as it happens, finished episodes, metrics, documents.

What a method has written is committed when it returns; `append` and `finish`, which many
sessions call at once, return what to wait for until then (see `group.py`). Killing the
process at any moment loses nothing that was committed. One process writes at a time (see
`lock.py`); any number may read meanwhile. An object belongs to the thread that opened it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, RunGone, RunVersionMismatch
from palaestra.core.journal import Event
from palaestra.store.codec import JSON
from palaestra.store.disk import is_full, refusal, storage_full
from palaestra.store.events import OF_KEY, SCHEMA, EventLog, parts
from palaestra.store.group import CommitGroup
from palaestra.store.header import (
    HEADER_COLUMNS,
    SUMMARY_COLUMNS,
    EpisodeSummary,
    events_in_order,
    header_row,
    rebuilt,
    summaries_of,
)

FORMAT = 2
"""Version of what is stored; changes whenever older code could not read it."""

_SCHEMA = f"""{SCHEMA}
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

# As `header_row` gives their values.
_COLUMNS = f"{HEADER_COLUMNS}, task_id, environment, reward, turns, sampled_tokens"
_ADD_EPISODE = f"""INSERT INTO episode ({_COLUMNS}) VALUES (?{", ?" * 14})
ON CONFLICT (phase, "group", member) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[3:])}"""


class Database:
    """The durable record of one run; also the `Journal` of its sessions."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use `Database.open`."""
        self.path = path
        self._connection = connection
        self._log = EventLog(connection)
        self._headers: list[tuple[Any, ...]] = []  # of episodes that have just finished
        self._group = CommitGroup(self._commit)

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False) -> Database:
        """Open the database in file `path`; create it if it is not there.

        With `readonly` the file must be there; another process may write to it meanwhile.

        Raises:
            InputError: `path` cannot be opened, or is no database of a run.
            RunVersionMismatch: it was written in another format.
            StorageFull: there is no space to create it.
        """
        path = Path(path)
        mode = _reading(path) if readonly else "mode=rwc"
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}",
                uri=True,
                timeout=10.0,  # seconds to wait for another process's transaction
                isolation_level=None,
            )
            database = cls(path, connection)
            if not readonly:
                database._prepare()
            database._check_format()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise InputError(
                f"{path} cannot be opened as the database of a run: {error}. "
                "Check the path and its permissions."
            ) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return database

    def close(self) -> None:
        """Commit what waits, and close.

        Raises:
            StorageFull: the disk is full; what was committed before is intact.
        """
        try:
            self._group.flush()
        finally:
            self._connection.close()

    # ── the journal: events of episodes, as they happen ──────────────────────

    def append(self, key: Key, event: Event) -> asyncio.Future[None] | None:
        """Store one event after the others of its episode.

        Returns:
            what to wait for until it is committed; None outside of an event loop, where it is.

        Raises:
            StorageFull: the disk is full; earlier events are intact. Waiting raises it, too.
            AgentFault, EnvironmentFault, InfrastructureFault: see `encode_event`.
        """
        self._log.append(key, event)
        return self._group.join()

    def past(self, key: Key) -> list[Event]:
        """The events of one episode, finished or not, in the order in which they happened."""
        if self._log.open(key):
            self._group.flush()
        return self._log.read(OF_KEY, parts(key)).get(key, [])

    def forget(self, key: Key) -> None:
        """Drop the events and the header of one episode, so that it can be lived anew."""
        self._group.flush()
        with self._transaction():
            self._log.erase(key)
            self._connection.execute(f"DELETE FROM episode{OF_KEY}", parts(key))

    # ── finished episodes ────────────────────────────────────────────────────

    def finish(self, episode: Episode) -> asyncio.Future[None] | None:
        """Store that an episode has ended, and how; replaces an earlier one of the same key.

        Its calls and steps are those in the journal. Only where the journal does not hold
        as many (an episode that was lived without one) are they written here.

        Returns:
            what to wait for until it is committed; None: it is.

        Raises:
            StorageFull: the disk is full; earlier episodes are intact.
            ValueError: the task, the first observation or the labels are no JSON.
        """
        key, header = episode.key, header_row(episode)
        if self._log.counts(key) != (len(episode.calls), len(episode.steps)):
            self._replace(episode, header)
            return None
        self._headers.append(header)
        self._log.close(key)
        return self._group.join()

    def episode(self, key: Key) -> Episode | None:
        """The finished episode of that key, equal to what was finished; None without one."""
        self._group.flush()
        here = self._connection.execute(f"SELECT 1 FROM episode{OF_KEY}", parts(key)).fetchone()
        return None if here is None else self._episodes(OF_KEY, parts(key))[0]

    def episodes(self, phase: str) -> list[Episode]:
        """The finished episodes of exactly that phase, ordered by group and member."""
        return self._episodes(" WHERE phase = ?", (phase,))

    def summaries(self, prefix: str = "") -> list[EpisodeSummary]:
        """The finished episodes of the phases that start with `prefix`.

        Phases stand in the order of their first finished episode, ordered within by group
        and member.
        """
        self._group.flush()
        rows = self._connection.execute(
            f"SELECT {SUMMARY_COLUMNS} FROM episode WHERE substr(phase, 1, ?) = ?"
            ' ORDER BY min(id) OVER (PARTITION BY phase), phase, "group", member',
            (len(prefix), prefix),
        ).fetchall()
        return summaries_of(rows)

    def phases(self) -> list[str]:
        """The phases with finished episodes, in the order of their first one."""
        self._group.flush()
        rows = self._connection.execute("SELECT phase FROM episode GROUP BY phase ORDER BY min(id)")
        return [phase for (phase,) in rows]

    # ── metrics and documents ────────────────────────────────────────────────

    def add_metrics(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Store the numbers of one step; replaces what the same phase and step had."""
        body = json.dumps({name: float(value) for name, value in values.items()})
        self._write("INSERT OR REPLACE INTO metric VALUES (?, ?, ?)", (phase, step, body))

    def metrics(self, phase: str) -> list[tuple[int, dict[str, float]]]:
        """The numbers of each step of exactly that phase, ordered by step."""
        rows = self._connection.execute(
            "SELECT step, body FROM metric WHERE phase = ? ORDER BY step", (phase,)
        )
        return [(step, json.loads(body)) for step, body in rows]

    def put(self, name: str, document: JSON) -> None:
        """Store a small document, such as the recipe; replaces one of the same name."""
        body = json.dumps(document, ensure_ascii=True)
        self._write("INSERT OR REPLACE INTO document VALUES (?, ?)", (name, body))

    def get(self, name: str) -> JSON | None:
        """The document of that name, or None."""
        row = self._connection.execute(
            "SELECT body FROM document WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def documents(self, prefix: str) -> dict[str, JSON]:
        """The documents whose names start with `prefix`, by the rest of their names, in order."""
        rows = self._connection.execute(
            "SELECT substr(name, ?), body FROM document WHERE name >= ? AND substr(name, 1, ?) = ?"
            " AND name < ? ORDER BY name",
            (len(prefix) + 1, prefix, len(prefix), prefix, prefix + chr(0x10FFFF)),
        )
        return {name: json.loads(body) for name, body in rows}

    # ── details ──────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        with self._explained():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            # Pages between checkpoints, each of which waits for the disk twice.
            self._connection.execute("PRAGMA wal_autocheckpoint = 8000")
        if self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            return
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            values = [("format", str(FORMAT)), ("palaestra", __version__)]
            self._connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", values)

    def _check_format(self) -> None:
        found: dict[str, str] = dict(self._connection.execute("SELECT name, value FROM meta"))
        check_format(self.path, found.get("format"), found.get("palaestra"))

    def _commit(self) -> None:
        """Write what has gathered, in one transaction; all of it or nothing."""
        headers, self._headers = self._headers, []
        if headers or self._log.waiting:
            with self._writing():
                self._log.write()
                self._connection.executemany(_ADD_EPISODE, headers)

    def _replace(self, episode: Episode, header: tuple[Any, ...]) -> None:
        """Write an episode whole, in place of what is there of it."""
        self._group.flush()
        with self._writing():
            self._log.erase(episode.key)
            for event in events_in_order(episode):
                self._log.append(episode.key, event)
            self._log.close(episode.key)
            self._log.write()
            self._connection.execute(_ADD_EPISODE, header)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self.check_present()
            with self._transaction():
                yield
        except BaseException:
            self._log.discard()
            raise

    def _episodes(self, where: str, values: Sequence[Any]) -> list[Episode]:
        self._group.flush()
        with self._transaction("BEGIN"):  # headers and events of the same moment
            order = ' ORDER BY phase, "group", member'
            rows = self._connection.execute(
                f"SELECT {HEADER_COLUMNS} FROM episode{where}{order}", values
            ).fetchall()
            return rebuilt(rows, self._log.read(where, values) if rows else {})

    def check_present(self) -> None:
        """Raises RunGone if the file was deleted or moved: what is written now would be lost."""
        if not self.path.exists():
            raise RunGone(
                f"'{self.path.parent}' was deleted or moved while its run went on, so nothing more "
                "can be stored there. Start the run anew, or resume it where it lies now."
            )

    def _write(self, statement: str, values: Sequence[Any]) -> None:
        self.check_present()
        self._group.flush()  # what was written first is stored first
        with self._explained():
            self._connection.execute(statement, values)

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        with self._explained():
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has already rolled it back
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            self._raise_if_full(error)
            raise

    def _raise_if_full(self, error: sqlite3.OperationalError) -> None:
        """Raise StorageFull if that is why `error` came: SQLite tells only for some reasons."""
        code = error.sqlite_errorcode & 0xFF
        cause: Exception | None = error if code == sqlite3.SQLITE_FULL else None
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
            cause = refusal(self.path.with_name(f"{self.path.name}-wal"))
        if cause is error or (cause is not None and is_full(cause)):
            raise storage_full("The record of the run", self.path.parent, cause) from error


def check_format(path: Path, format: str | None, writer: str | None) -> None:
    """Raise RunVersionMismatch unless `format` is ours; `writer` is the palaestra that wrote it."""
    if format == str(FORMAT):
        return
    raise RunVersionMismatch(
        f"{path} has run format {format}, and palaestra {__version__} reads format {FORMAT}. "
        f"Use the version that wrote it (`pip install palaestra=={writer}`), or start a new run."
    )


def _reading(path: Path) -> str:
    """How to open a database only for reading.

    SQLite keeps a file beside the database even for readers. Where the folder allows none (a
    run of someone else, a read-only disk) and no process writes, it can do without.
    """
    writing = path.with_name(f"{path.name}-wal").exists()
    return "mode=ro" if writing or os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
