"""The database of a run: every event as it happens, finished episodes, metrics, documents.

A method commits what it writes before it returns; `append` and `finish`, which many sessions
call at once, return the commit to be awaited (see `group_commit.py`). Killing the process at any
moment loses no committed data; with `Durability.FULL`, nor does a power cut. One process writes
at a time (see `lock.py`); any number may read meanwhile. Opening it for writing raises a number in
it, the epoch; who opened it with a lower one is refused at its next write. An object belongs to the
thread that opened it. Reading damaged data raises DamagedRun.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import InputError, RunGone
from palaestra.store.codec import JSON
from palaestra.store.damage import Connection, Statement, damaged, decoding, raise_if_damaged
from palaestra.store.disk import sync
from palaestra.store.events import OF_KEY, EventLog, parts
from palaestra.store.group_commit import Commit, CommitGroup
from palaestra.store.header import (
    HEADER_COLUMNS,
    SUMMARY_COLUMNS,
    EpisodeSummary,
    events_in_order,
    header_row,
    rebuilt,
    summaries_of,
)
from palaestra.store.schema import (
    Durability,
    about,
    bring_up,
    check_tables,
    connect,
    create,
    epoch_of,
    raise_if_full,
    reading,
)
from palaestra.store.take_over import taken_over

# As `header_row` gives their values.
_COLUMNS = f"{HEADER_COLUMNS}, task_id, environment, reward, turns, sampled_tokens"
_ADD_EPISODE = f"""INSERT INTO episode ({_COLUMNS}) VALUES (?{", ?" * 14})
ON CONFLICT (phase, "group", member) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[3:])}"""


T = TypeVar("T")

Copying = Callable[[int, list[Statement]], asyncio.Future[None]]
"""Takes the epoch and the statements of a transaction; returns a future of their being copied."""


class Database:
    """The durable record of one run; also the `Journal` of its sessions."""

    def __init__(self, path: Path, connection: Connection) -> None:
        """Use `Database.open`."""
        self.path = path
        self._connection = connection
        self._log = EventLog(connection)
        self.blobs = self._log.blobs
        self._headers: list[tuple[Any, ...]] = []  # of episodes that have just finished
        self._group = CommitGroup(self._commit, lambda: self._log.in_progress == 1)
        self._file = os.fspath(path)
        self._inode = _inode(self._file)  # as it was opened
        self._epoch: int | None = None  # of a writer; see `_prepare`
        self._copying: Copying | None = None
        self._copied: asyncio.Future[None] | None = None  # of the latest transaction

    @classmethod
    def open(
        cls, path: Path, *, readonly: bool = False, durability: Durability = Durability.NORMAL
    ) -> Database:
        """Open the database in file `path`; create it if the file does not exist.

        A database of the previous format is migrated, unless it is opened read-only.

        Args:
            path: the file; an existing but empty file counts as damaged, not as new.
            readonly: the file must exist; another process may write to it meanwhile.
            durability: of a new database, stored in it.

        Raises:
            InputError: `path` cannot be opened.
            DamagedRun: it is not the database of a run, or incomplete.
            RunVersionMismatch: it has another format; for the previous format, only with
                `readonly`.
            StorageFull: there is no space to create or migrate it.
        """
        path = Path(path)
        with ExitStack() as undone:
            try:
                if not readonly and not path.exists():
                    create(path, durability)
                connection = connect(path, reading(path) if readonly else "mode=rw")
                undone.callback(connection.close)
                if not readonly:
                    bring_up(path, connection)
                check_tables(path, connection)
                database = cls(path, connection)
                if not readonly:
                    database._prepare()
            except sqlite3.Error as error:
                if isinstance(error, sqlite3.OperationalError) and not readonly:
                    raise_if_full(path, error)
                raise InputError(
                    f"{path} cannot be opened as the database of a run: {error}. "
                    "Check the path and its permissions."
                ) from error
            undone.pop_all()
        return database

    def close(self) -> None:
        """Commit pending writes, and close.

        Raises:
            StorageFull: the disk is full; data committed before is intact.
        """
        try:
            self._group.flush()
        finally:
            self._connection.close()

    # ── the journal: events of episodes, as they happen ──────────────────────

    def append(self, key: Key, event: Event) -> Commit | None:
        """Store one event after the others of its episode.

        Returns:
            the commit, to be awaited; None outside of an event loop, where it is committed.

        Raises:
            StorageFull: the disk is full; earlier events are intact. Waiting raises it, too.
            AgentFault, EnvironmentFault, InfrastructureFault: see `encode_event`.
        """
        self._log.append(key, event)
        return self._group.join()

    def past(self, key: Key) -> list[Event]:
        """Return the events of one episode, finished or not, in order."""
        if self._log.open(key):
            self._group.flush()
        with self._begun(), decoding(self.path):
            return self._log.read(OF_KEY, parts(key)).get(key, [])

    def forget(self, key: Key) -> None:
        """Delete the events and the header of one episode, so that it can run again."""
        self._group.flush()

        def delete() -> None:
            self._log.erase(key)
            self._connection.execute(f"DELETE FROM episode{OF_KEY}", parts(key))

        self._transact(delete)

    def steps(self) -> int:
        """Return the number of steps recorded so far, those of unfinished episodes included."""
        self._group.flush()
        return int(self._connection.execute("SELECT total(steps) FROM record").fetchone()[0])

    # ── finished episodes ────────────────────────────────────────────────────

    def finish(self, episode: Episode) -> Commit | None:
        """Store a finished episode; replace an earlier one of the same key.

        Its calls and steps are those in the journal. They are written here only if the journal
        does not hold as many (an episode that ran without a journal).

        Returns:
            the commit, to be awaited; None: it is committed.

        Raises:
            StorageFull: the disk is full; earlier episodes are intact.
            ValueError: the task, the first observation or the labels are not JSON.
        """
        key, header = episode.key, header_row(episode, external_images=True)
        self.blobs.keep_seen(episode.observation)
        if self._log.counts(key) != (len(episode.calls), len(episode.steps)):
            self._replace(episode, header)
            return None
        self._headers.append(header)
        self._log.close(key)
        return self._group.join()

    def episode(self, key: Key) -> Episode | None:
        """Return the finished episode of that key; None without one."""
        self._group.flush()
        here = self._connection.execute(f"SELECT 1 FROM episode{OF_KEY}", parts(key)).fetchone()
        return None if here is None else self._episodes(OF_KEY, parts(key))[0]

    def episodes(self, phase: str) -> list[Episode]:
        """Return the finished episodes of exactly that phase, ordered by group and member."""
        return self._episodes(" WHERE phase = ?", (phase,))

    def summaries(self, prefix: str = "") -> list[EpisodeSummary]:
        """Return summaries of the finished episodes of the phases that start with `prefix`.

        Phases are in the order of their first finished episode; within a phase, episodes are
        ordered by group and member.
        """
        self._group.flush()
        rows = self._connection.execute(
            f"SELECT {SUMMARY_COLUMNS} FROM episode WHERE substr(phase, 1, ?) = ?"
            ' ORDER BY min(id) OVER (PARTITION BY phase), phase, "group", member',
            (len(prefix), prefix),
        ).fetchall()
        with decoding(self.path):
            return summaries_of(rows)

    def phases(self) -> list[str]:
        """Return the phases with finished episodes, in the order of their first one."""
        self._group.flush()
        rows = self._connection.execute("SELECT phase FROM episode GROUP BY phase ORDER BY min(id)")
        return [phase for (phase,) in rows]

    # ── metrics and documents ────────────────────────────────────────────────

    def add_metrics(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Store the metrics of one step; replace those of the same phase and step."""
        body = json.dumps({name: float(value) for name, value in values.items()})
        self._write("INSERT OR REPLACE INTO metric VALUES (?, ?, ?)", (phase, step, body))

    def metrics(self, phase: str) -> list[tuple[int, dict[str, float]]]:
        """Return the metrics of each step of exactly that phase, ordered by step."""
        rows = self._connection.execute(
            "SELECT step, body FROM metric WHERE phase = ? ORDER BY step", (phase,)
        )
        with decoding(self.path):
            return [(step, json.loads(body)) for step, body in rows]

    def metric_phases(self) -> list[str]:
        """Return the phases that have metrics, in the order of their latest first step."""
        rows = self._connection.execute(
            "SELECT phase FROM metric GROUP BY phase ORDER BY min(rowid)"
        )
        return [phase for (phase,) in rows]

    def put(self, name: str, document: JSON) -> None:
        """Store a small document, such as the recipe; replace one of the same name."""
        body = json.dumps(document, ensure_ascii=True)
        self._write("INSERT OR REPLACE INTO document VALUES (?, ?)", (name, body))

    def get(self, name: str) -> JSON | None:
        """Return the document of that name, or None."""
        row = self._connection.execute(
            "SELECT body FROM document WHERE name = ?", (name,)
        ).fetchone()
        with decoding(self.path):
            return None if row is None else json.loads(row[0])

    def documents(self, prefix: str) -> dict[str, JSON]:
        """Return the documents whose names start with `prefix`, by the rest of their names."""
        rows = self._connection.execute(
            "SELECT substr(name, ?), body FROM document WHERE name >= ? AND substr(name, 1, ?) = ?"
            " AND name < ? ORDER BY name",
            (len(prefix) + 1, prefix, len(prefix), prefix, prefix + chr(0x10FFFF)),
        )
        with decoding(self.path):
            return {name: json.loads(body) for name, body in rows}

    # ── as a file ────────────────────────────────────────────────────────────

    def about(self) -> dict[str, str]:
        """Return its metadata: `format`, `palaestra` (version), `created` and `durability`."""
        return about(self._connection)

    @property
    def durability(self) -> Durability:
        """The durability of commits."""
        with decoding(self.path):
            return Durability(self.about().get("durability", Durability.NORMAL))

    def holds_anything(self) -> bool:
        """Return whether anything was recorded, besides documents."""
        tables = ("record", "episode", "metric")
        any_of = " UNION ALL ".join(f"SELECT 1 FROM (SELECT 1 FROM {t} LIMIT 1)" for t in tables)
        return self._connection.execute(any_of).fetchone() is not None

    def check(self) -> None:
        """Raise DamagedRun unless every page is valid; reads the whole file."""
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(self.path, found)

    def sync(self) -> None:
        """Wait until all commits are on disk."""
        self._group.flush()
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists():
            sync(log)
        sync(self.path.parent)

    # ── for a copy on another machine (see `run_copy.py`) ────────────────────

    def copy_to(self, copying: Copying | None) -> None:
        """Hand each transaction to `copying` from now on, in order, right after its commit.

        The commits of `append` and `finish` are over only when the copy has it; the other methods
        do not wait for that.
        """
        self._copying = copying
        if copying is None:
            self._copied = None

    def snapshot(self) -> Callable[[Path], None]:
        """Return a function that writes all that is committed now to a file, in any thread."""
        self._group.flush()
        source = connect(self.path, "mode=ro", any_thread=True)
        source.execute("BEGIN")
        about(source)  # from here on it sees no later commit

        def write(file: Path) -> None:
            with closing(source), closing(sqlite3.connect(file)) as target:
                source.backup(target)

        return write

    # ── for salvaging a damaged run (see `salvage.py`) ───────────────────────

    def recorded(self) -> list[Key]:
        """Return the keys of all episodes with events, finished or not."""
        rows = self._connection.execute('SELECT phase, "group", member FROM record ORDER BY id')
        return [Key(*row) for row in rows]

    def write_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement with each of the rows, in one transaction."""
        self._transact(lambda: self._connection.executemany(statement, rows))

    def note(self, **values: str) -> None:
        """Set metadata of the database; see `about`."""
        self.write_all("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def drop(self, keys: Sequence[Key]) -> None:
        """Delete episodes, then all events without an episode (episodes may share events)."""
        for table in ("episode", "record"):
            self.write_all(f"DELETE FROM {table}{OF_KEY}", [parts(key) for key in keys])
        self._transact(self._log.erase_orphans)

    # ── details ──────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        full = self.durability is Durability.FULL
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        # The number of pages between checkpoints, each of which waits for the disk twice.
        self._connection.execute("PRAGMA wal_autocheckpoint = 8000")

        def raised() -> int:
            epoch = epoch_of(self._connection) + 1
            self._connection.execute(
                "INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (str(epoch),)
            )
            return epoch

        self._epoch = self._transact(raised)

    def _commit(self) -> asyncio.Future[None] | None:
        """Write all pending data, in one transaction; return a future of its copy, if any."""
        headers, self._headers = self._headers, []
        if not headers and not self._log.waiting:
            return self._copied

        def write() -> None:
            self._log.write()
            if headers:
                self._connection.executemany(_ADD_EPISODE, headers)

        try:
            self._transact(write)
        except BaseException:
            self._log.discard()
            raise
        return self._copied

    def _replace(self, episode: Episode, header: tuple[Any, ...]) -> None:
        """Write a whole episode, and replace its stored events."""
        self._group.flush()

        def replace() -> None:
            self._log.erase(episode.key)
            for event in events_in_order(episode):
                self._log.append(episode.key, event)
            self._log.close(episode.key)
            self._log.write()
            self._connection.execute(_ADD_EPISODE, header)

        try:
            self._transact(replace)
        except BaseException:
            self._log.discard()
            raise

    def _episodes(self, where: str, values: Sequence[Any]) -> list[Episode]:
        self._group.flush()
        with self._begun():  # headers and events of the same moment
            order = ' ORDER BY phase, "group", member'
            rows = self._connection.execute(
                f"SELECT {HEADER_COLUMNS} FROM episode{where}{order}", values
            ).fetchall()
            with decoding(self.path):
                return rebuilt(rows, self._log.read(where, values) if rows else {}, self.blobs.find)

    def check_present(self) -> None:
        """Raise an error if new data would be lost.

        Raises:
            RunGone: the file was deleted or moved.
            RunTakenOver: another process replaced it.
        """
        try:
            found = _inode(self._file)
        except FileNotFoundError:
            raise RunGone(
                f"'{self.path.parent}' was deleted or moved during its run, so nothing more can be "
                "stored there. Start the run again, or resume it at its new path."
            ) from None
        if found != self._inode:
            raise taken_over(self.path.parent)

    def _write(self, statement: str, values: Sequence[Any]) -> None:
        self._group.flush()  # keeps the order of writes
        self._transact(lambda: self._connection.execute(statement, values))

    def _transact(self, write: Callable[[], T]) -> T:
        """Call `write` in one transaction, which only the latest writer may; return its result.

        A context manager would take as long as a statement of a small transaction.
        """
        connection, written = self._connection, list[Statement]()
        try:
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # commits, or rolls back unless a full disk has done so already
                if self._epoch is not None and epoch_of(connection) != self._epoch:
                    raise taken_over(self.path.parent)
                connection.written = None if self._copying is None else written
                result = write()
        except sqlite3.DatabaseError as error:
            self.check_present()
            raise_if_damaged(self.path, error)
            if isinstance(error, sqlite3.OperationalError):
                raise_if_full(self.path, error)
            raise
        finally:
            connection.written = None
        self.check_present()  # it may have been replaced, also while this process was frozen
        if self._copying is not None and self._epoch is not None:
            self._copied = self._copying(self._epoch, written)
        return result

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Read in one transaction, so that all is of the same moment."""
        self._connection.execute("BEGIN")
        with self._connection:
            yield


def _inode(path: str) -> tuple[int, int]:
    """Return what tells a file from another one of the same name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino
