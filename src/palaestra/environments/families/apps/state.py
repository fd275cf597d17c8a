"""The state of a world: rows in an SQLite database in memory, with a key and a log of changes.

All writes go through `insert`, `update` and `delete`. Each keeps up the state's key, a sum of
the hashes of all rows, so that asking for the key costs nothing however large the world is; and a
log of the touched rows (`change_log.py`), so that what an agent changed is known without comparing
worlds.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from palaestra.environments.families.apps.change_log import ChangeLog
from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.compiler.tables import booleans

Row = dict[str, Any]
MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Change:
    """A row that differs between two states.

    `before` is None where it was made, `after` where it was deleted.
    """

    table: str
    id: int
    before: Row | None
    after: Row | None

    @property
    def kind(self) -> str:
        """`insert`, `update` or `delete`."""
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"

    @property
    def values(self) -> Row:
        """The columns that differ, with their new values; of a deleted row none."""
        before = self.before or {}
        return {k: v for k, v in (self.after or {}).items() if k not in before or before[k] != v}


@dataclass(frozen=True, slots=True)
class Template:
    """A world to open states from: the serialised database, its key and its next ids."""

    columns: Mapping[str, Mapping[str, Column]]  # of each table
    database: bytes
    total: int  # the sum of the hashes of all rows
    next_ids: Mapping[str, int]

    @classmethod
    def of(cls, columns: Mapping[str, Mapping[str, Column]], made: Sequence[str]) -> Template:
        """Return an empty world with the tables that the statements make."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in made:
            connection.execute(statement)
        return cls(columns, connection.serialize(), 0, dict.fromkeys(columns, 1))


class State:
    """One world's rows. Not for several threads at once."""

    def __init__(self, template: Template) -> None:
        self.columns = template.columns
        self._total, self._next = template.total, dict(template.next_ids)
        self._booleans: dict[str, tuple[str, ...]] = {}  # by table, of those that were read
        self._log = ChangeLog()
        self._event = ""  # the name of what happens now, see `happening`
        self._written: list[Change] = []  # by it, so far
        self.watched: list[Change] | None = None  # collects each change, unless None
        self._database = _opened(template.database)

    def close(self) -> None:
        self._database.close()

    # ── reading ──────────────────────────────────────────────────────────────

    def get(self, table: str, id: int) -> Row | None:
        """Return the row with that id."""
        found = self._database.execute(f'SELECT * FROM "{table}" WHERE id = ?', (id,)).fetchone()
        return None if found is None else self._row(table, found)

    def rows(
        self,
        table: str,
        where: str = "",
        values: Sequence[object] = (),
        limit: int = -1,
        offset: int = 0,
    ) -> list[Row]:
        """Return rows in the order of their ids.

        Args:
            table: `app.entity`.
            where: an SQL condition with `?` for values; it must never hold text from a caller.
            values: what the question marks stand for.
            limit: the most rows; below 0 all.
            offset: how many rows to leave out before them.
        """
        condition = f"WHERE {where}" if where else ""
        found = self._database.execute(
            f'SELECT * FROM "{table}" {condition} ORDER BY id LIMIT ? OFFSET ?',
            (*values, limit, offset),
        )
        return [self._row(table, row) for row in found]

    def find(self, table: str, **equal: object) -> list[Row]:
        """Return the rows whose fields have these values."""
        where = " AND ".join(f'"{field}" = ?' for field in equal)
        return self.rows(table, where, list(equal.values()))

    def count(self, table: str, where: str = "", values: Sequence[object] = ()) -> int:
        """Return how many rows fulfil an SQL condition; see `rows`."""
        condition = f"WHERE {where}" if where else ""
        (number,) = self._database.execute(
            f'SELECT count(*) FROM "{table}" {condition}', tuple(values)
        ).fetchone()
        return int(number)

    # ── writing ──────────────────────────────────────────────────────────────

    def insert(self, table: str, values: Mapping[str, Any]) -> int:
        """Insert a row and return its id; fields without a value are null.

        Raises:
            sqlite3.IntegrityError: another row has the values of a unique index.
        """
        id = self._next[table]
        row: Row = {"id": id, **{name: values.get(name) for name in self.columns[table]}}
        marks = ", ".join("?" * len(row))
        self._database.execute(f'INSERT INTO "{table}" VALUES ({marks})', tuple(row.values()))
        self._next[table] = id + 1
        self._note(table, id, None, row)
        return id

    def update(self, table: str, id: int, values: Mapping[str, Any]) -> None:
        """Change fields of a row; raises sqlite3.IntegrityError as `insert` does."""
        before = self.get(table, id)
        if before is None:
            raise KeyError(f"no row {id} in {table}")
        sets = ", ".join(f'"{name}" = ?' for name in values)
        self._database.execute(f'UPDATE "{table}" SET {sets} WHERE id = ?', (*values.values(), id))
        self._note(table, id, before, {**before, **values})

    def delete(self, table: str, id: int) -> None:
        """Delete a row that exists."""
        before = self.get(table, id)
        if before is None:
            raise KeyError(f"no row {id} in {table}")
        self._database.execute(f'DELETE FROM "{table}" WHERE id = ?', (id,))
        self._note(table, id, before, None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo everything that was written within it if it raises."""
        total, ids, log = self._total, dict(self._next), self._log.copy()
        written = len(self._written)
        watched = len(self.watched or ())
        self._database.execute("SAVEPOINT written")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK TO written")
            self._total, self._next, self._log = total, ids, log
            del self._written[written:]
            del (self.watched or [])[watched:]
            raise
        finally:
            self._database.execute("RELEASE written")

    @contextmanager
    def happening(self, event: str) -> Iterator[list[Change]]:
        """Let all that is written within it be what an event changes, and not the agent.

        Args:
            event: its name, which no other event of the world has.

        Yields:
            a list to which each change is added.
        """
        self._event, self._written = event, []
        try:
            yield self._written
        finally:
            self._event, self._written = "", []

    # ── comparing, saving ────────────────────────────────────────────────────

    def key(self) -> str:
        """Return a key of all rows and of the ids that come next; equal states have equal keys."""
        document = json.dumps([self._total, list(self._next.values())])
        return hashlib.blake2b(document.encode(), digest_size=12).hexdigest()

    def changes(self) -> list[Change]:
        """Return the rows that the agent changed since the world was opened, by table and id."""
        found = []
        for (table, id), before in sorted(self._log.before.items(), key=lambda item: item[0]):
            after = self.get(table, id)
            if after is not None and (table, id) in self._log.replaced:
                after |= self._log.replaced[table, id]
            if before != after:
                found.append(Change(table, id, before, after))
        return found

    def event_rows(self) -> Mapping[tuple[str, int], str]:
        """Return the rows that events made, with a name for each that is the same in any episode.

        Their ids are not: they depend on what else was made before.
        """
        return self._log.made

    def history_key(self) -> str:
        """Return a key of what events and the agent changed, each by themselves."""
        return hashlib.blake2b(json.dumps(self._log.saved()).encode(), digest_size=12).hexdigest()

    def template(self) -> Template:
        """Return the present rows as a world to open: there, nothing has changed yet."""
        return Template(self.columns, self._database.serialize(), self._total, dict(self._next))

    def fork(self) -> State:
        """Return a copy, with its log of changes."""
        other = State(self.template())
        other._log = self._log.copy()
        return other

    def snapshot(self) -> bytes:
        """Return the rows, the key and the log; equal states do not always have equal bytes."""
        head = json.dumps([self._total, self._next, self._log.saved()])
        return head.encode() + b"\n" + self._database.serialize()

    def restore(self, snapshot: bytes) -> None:
        """Return to a snapshot of a world with the same tables."""
        head, _, database = snapshot.partition(b"\n")
        self._total, self._next, log = json.loads(head)
        self._log = ChangeLog.restored(log)
        # A new connection: SQLite runs prepared statements that an old one has cached on the freed
        # tables of before.
        self._database.close()
        self._database = _opened(database)

    def total(self) -> int:
        """Return the sum of the hashes of all rows, computed from the rows."""
        return (
            sum(_hash(table, row) for table in self.columns for row in self.rows(table)) % MODULUS
        )

    # ── details ──────────────────────────────────────────────────────────────

    def _row(self, table: str, values: Sequence[Any]) -> Row:
        row: Row = {"id": values[0], **dict(zip(self.columns[table], values[1:], strict=True))}
        if table not in self._booleans:
            self._booleans[table] = booleans(self.columns[table])
        for name in self._booleans[table]:
            row[name] = None if row[name] is None else bool(row[name])
        return row

    def _note(self, table: str, id: int, before: Row | None, after: Row | None) -> None:
        """Keep up the key and the log."""
        change = Change(table, id, before, after)
        if self._event:
            label = f"{self._event} {len(self._written)}"
            self._log.note_event((table, id), before, after, self.columns[table], label)
            self._written.append(change)
        else:
            self._log.note((table, id), before, after)
        if self.watched is not None:
            self.watched.append(change)
        gone = _hash(table, before) if before is not None else 0
        come = _hash(table, after) if after is not None else 0
        self._total = (self._total - gone + come) % MODULUS


def difference(before: State, after: State) -> list[Change]:
    """Return the rows in which two states of a world differ, by table and id."""
    found = []
    for table in sorted(before.columns):
        old = {row["id"]: row for row in before.rows(table)}
        new = {row["id"]: row for row in after.rows(table)}
        found += [
            Change(table, id, old.get(id), new.get(id))
            for id in sorted(old.keys() | new.keys())
            if old.get(id) != new.get(id)
        ]
    return found


def _opened(database: bytes) -> sqlite3.Connection:
    """Return a connection to a copy of a serialised database."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.deserialize(database)
    return connection


def _hash(table: str, row: Row) -> int:
    # Not `repr`: money may be 25 or 25.0, which are the same row.
    numbers = {k: float(v) if type(v) is int else v for k, v in row.items()}
    document = json.dumps([table, numbers], sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(document, digest_size=16).digest(), "big")
