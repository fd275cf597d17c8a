"""The database of a site: an SQLite database in memory, opened from a template and compared to it.

A template is a serialised database. Opening a copy of it takes a millisecond; what differs in the
end is found row by row, and saved as the pages of the file that differ.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.state import Change, Row

PAGE = 1024  # bytes of a page of a template: small, so that what differs is small


@dataclass(frozen=True)
class SiteTemplate:
    """A database to open sites from, and what its tables are.

    Tables are named `site.table` here, as those of apps are; in the database they have no prefix.
    """

    site: str  # the name of the application
    database: bytes
    columns: Mapping[str, Mapping[str, Column]]  # of each table, without its id
    rows: Mapping[str, Mapping[int, tuple[Any, ...]]]  # of each table that has any, by id

    @classmethod
    def of(cls, site: str, connection: sqlite3.Connection) -> SiteTemplate:
        """Return a template of the rows that a database holds now."""
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = sorted(name for (name,) in found if not name.startswith("sqlite_"))
        columns = {f"{site}.{name}": _columns(connection, name) for name in names}
        rows = {table: read for table in columns if (read := _rows(connection, table, columns))}
        return cls(site, connection.serialize(), columns, rows)


class SiteDatabase:
    """One world's copy of a template. For one thread at a time."""

    def __init__(self, template: SiteTemplate) -> None:
        self.template = template
        self.connection = opened(template.database)
        self._read: tuple[int, tuple[Change, ...]] | None = None  # and after how many writes
        self._kept: tuple[int, bytes] | None = None  # what was saved, and after how many writes

    @property
    def columns(self) -> Mapping[str, Mapping[str, Column]]:
        return self.template.columns

    def close(self) -> None:
        self.connection.close()

    # ── reading ──────────────────────────────────────────────────────────────

    def rows(self, table: str, where: str = "", values: Sequence[object] = ()) -> list[Row]:
        """Return rows in the order of their ids, as SQLite holds them.

        Args:
            table: `site.table`.
            where: an SQL condition with `?` for values.
            values: what the question marks stand for.
        """
        found = _rows(self.connection, table, self.columns, where, values)
        return [self._row(table, id, row) for id, row in found.items()]

    def differences(self) -> tuple[Change, ...]:
        """Return all rows that differ from the template, by table and id."""
        count = self.connection.total_changes
        if self._read is None or self._read[0] != count:
            self._read = count, tuple(self._compared())
        return self._read[1]

    def key(self) -> str:
        """Return a key of all rows; equal databases have equal keys."""
        found = [(one.table, one.id, one.after) for one in self.differences()]
        document = json.dumps(found, default=repr).encode()
        return hashlib.blake2b(document, digest_size=12).hexdigest()

    # ── saving ───────────────────────────────────────────────────────────────

    def save(self) -> bytes:
        """Return the pages that differ from the template."""
        count = self.connection.total_changes
        if self._kept is None or self._kept[0] != count:
            self._kept = count, self._differing()
        return self._kept[1]

    def load(self, saved: bytes) -> None:
        """Return to what was saved of a database with the same template."""
        head, _, pages = saved.partition(b"\n")
        size, numbers = json.loads(head)
        database = bytearray(self.template.database[:size].ljust(size, b"\0"))
        for index, number in enumerate(numbers):
            page = pages[index * PAGE : (index + 1) * PAGE]
            database[number * PAGE : (number + 1) * PAGE] = page
        # A new connection: an old one has prepared statements for the freed tables of before.
        self.connection.close()
        self.connection, self._read = opened(bytes(database)), None
        self._kept = self.connection.total_changes, saved

    # ── details ──────────────────────────────────────────────────────────────

    def _differing(self) -> bytes:
        before, now = self.template.database, self.connection.serialize()
        starts = range(0, len(now), PAGE)
        differ = [at for at in starts if now[at : at + PAGE] != before[at : at + PAGE]]
        head = json.dumps([len(now), [at // PAGE for at in differ]]).encode()
        pages = b"".join(now[at : at + PAGE] for at in differ)
        return head + b"\n" + pages

    def _compared(self) -> list[Change]:
        found = []
        for table in self.columns:
            before = self.template.rows.get(table, {})
            now = _rows(self.connection, table, self.columns)
            if before == now:
                continue
            for id in sorted(before.keys() | now.keys()):
                old, new = before.get(id), now.get(id)
                if old != new:
                    before_row = self._row(table, id, old) if old is not None else None
                    after_row = self._row(table, id, new) if new is not None else None
                    found.append(Change(table, id, before_row, after_row))
        return found

    def _row(self, table: str, id: int, values: Sequence[Any]) -> Row:
        return {"id": id, **dict(zip(self.columns[table], values, strict=True))}


def opened(database: bytes) -> sqlite3.Connection:
    """Return a connection to a copy of a serialised database; empty: to a new one."""
    connection = sqlite3.connect(
        ":memory:",
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES,  # as Django wants it
    )
    if database:
        connection.deserialize(database)
    else:
        connection.execute(f"PRAGMA page_size = {PAGE}")
    return connection


def _columns(connection: sqlite3.Connection, name: str) -> dict[str, Column]:
    """Return the columns of a table but for its integer key, which is the id of its rows."""
    refers = {
        (field, target)
        for _, _, target, field, *_ in connection.execute(f'PRAGMA foreign_key_list("{name}")')
    }
    targets, found = dict(refers), {}
    for _, field, type, _, _, key in connection.execute(f'PRAGMA table_info("{name}")'):
        if key and type.lower() == "integer" and field == "id":
            continue
        time = type.lower() in ("datetime", "date", "time")
        found[field] = Column(
            type="time" if time else "integer" if field in targets else "text",
            by="service" if time else "person",
            refers=targets.get(field, ""),
        )
    return found


def _rows(
    connection: sqlite3.Connection,
    table: str,
    columns: Mapping[str, Mapping[str, Column]],
    where: str = "",
    values: Sequence[object] = (),
) -> dict[int, tuple[Any, ...]]:
    # The sign keeps values as they are stored: without it they would be made into Django's types.
    fields = "".join(f', +"{field}"' for field in columns[table])
    name, condition = table.partition(".")[2], f"WHERE {where}" if where else ""
    found = connection.execute(
        f'SELECT rowid{fields} FROM "{name}" {condition} ORDER BY rowid', tuple(values)
    )
    return {row[0]: row[1:] for row in found}
