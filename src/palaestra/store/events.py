"""The events of episodes: one append-only table.

Hundreds of episodes are written at once. An index that groups the events by episode would
change another page for nearly every event, so the table has none. Instead, each event holds
the number of the previous one, and a small table holds the last one of each episode: an
episode is read from its end to its start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from palaestra.core.episode import Event, Key
from palaestra.store.blobs import Blobs
from palaestra.store.codec import EventRow, decode_events, encode_event

OF_KEY = ' WHERE phase = ? AND "group" = ? AND member = ?'

SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, "group" INTEGER NOT NULL, member INTEGER NOT NULL,
    last INTEGER, calls INTEGER NOT NULL, steps INTEGER NOT NULL, UNIQUE (phase, "group", member));
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY, before INTEGER, kind TEXT NOT NULL, body TEXT NOT NULL,
    prompt BLOB, completion BLOB, logprobs BLOB, tools TEXT);
"""

_ADD_EVENT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_RECORD = "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?)"
_MOVE_RECORD = "UPDATE record SET last = ?, calls = ?, steps = ? WHERE id = ?"
_CHAIN = """WITH RECURSIVE chain (record, id) AS (
    SELECT id, last FROM record{where}
    UNION ALL
    SELECT chain.record, event.before FROM chain CROSS JOIN event ON event.id = chain.id
    WHERE event.before < event.id)"""  # because a damaged chain may be a cycle
_READ = f"""{_CHAIN}
SELECT record.phase, record."group", record.member, event.id,
    event.kind, event.body, event.prompt, event.completion, event.logprobs,
    event.tools
FROM chain CROSS JOIN event ON event.id = chain.id CROSS JOIN record ON record.id = chain.record"""
_COUNTS = 'SELECT phase, "group", member, calls + steps FROM record'
_ERASE = f"{_CHAIN} DELETE FROM event WHERE id IN (SELECT id FROM chain)"


@dataclass(slots=True, eq=False)
class _Tail:
    """The end of the record of one episode."""

    id: int
    key: Key
    stored: bool  # whether the table `record` has it
    last: int | None = None  # number of the last event
    calls: int = 0
    steps: int = 0


class EventLog:
    """The events of a database; new ones stay in memory until `write` in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use the database of `connection`, which has the tables of SCHEMA."""
        self._connection = connection
        self.blobs = Blobs(connection)
        self._rows: list[tuple[Any, ...]] = []  # events to be written
        self._tails: dict[Key, _Tail] = {}  # of episodes in progress
        self._moved: set[_Tail] = set()  # changed since the last write
        self._closed: list[Key] = []  # closed since the last write
        self._used: dict[str, int] = {}  # the highest number of each table

    @property
    def waiting(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._rows)

    @property
    def in_progress(self) -> int:
        """The number of episodes in progress."""
        return len(self._tails)

    def open(self, key: Key) -> bool:
        """Return whether events of that episode may still be in memory."""
        return key in self._tails

    def append(self, key: Key, event: Event) -> None:
        """Add one event in memory.

        Raises:
            AgentFault, EnvironmentFault, InfrastructureFault: see `encode_event`.
        """
        row = encode_event(event, self.blobs)
        tail = self._tails.get(key) or self._tail(key)
        number = self._next("event")
        self._rows.append((number, tail.last, *row))
        tail.last = number
        if row.kind == "call":
            tail.calls += 1
        else:
            tail.steps += 1
        self._moved.add(tail)

    def counts(self, key: Key) -> tuple[int, int]:
        """Return the numbers of calls and steps of an episode."""
        tail = self._tails.get(key) or self._tail(key)
        return tail.calls, tail.steps

    def close(self, key: Key) -> None:
        """Mark an episode as complete: no more events follow."""
        self._closed.append(key)

    def write(self) -> None:
        """Write all added events, within the caller's transaction; see `discard`."""
        rows, self._rows = self._rows, []
        moved, self._moved = self._moved, set()
        closed, self._closed = self._closed, []
        fresh = [tail for tail in moved if not tail.stored]
        self.blobs.write()
        known = [(t.last, t.calls, t.steps, t.id) for t in moved if t.stored]
        self._connection.executemany(_ADD_EVENT, rows)
        if known:
            self._connection.executemany(_MOVE_RECORD, known)
        if fresh:
            new = [(t.id, *parts(t.key), t.last, t.calls, t.steps) for t in fresh]
            self._connection.executemany(_ADD_RECORD, new)
        for tail in fresh:
            tail.stored = True
        for key in closed:
            self._tails.pop(key, None)

    def discard(self) -> None:
        """Drop all events in memory; call it when the transaction of `write` has failed."""
        for held in (self._rows, self._tails, self._moved, self._closed, self._used):
            held.clear()
        self.blobs.discard()

    def erase(self, key: Key) -> None:
        """Delete the events of one episode, within the caller's transaction."""
        self._connection.execute(_ERASE.format(where=OF_KEY), parts(key))
        self._connection.execute(f"DELETE FROM record{OF_KEY}", parts(key))
        self._tails.pop(key, None)

    def erase_orphans(self) -> None:
        """Delete the events that belong to no episode, within the caller's transaction."""
        delete = "DELETE FROM event WHERE id NOT IN (SELECT id FROM chain)"
        self._connection.execute(f"{_CHAIN.format(where='')} {delete}")

    def read(self, where: str, values: Sequence[Any]) -> dict[Key, list[Event]]:
        """Return the written events of the episodes that match a condition on `record`, in order.

        Raises:
            ValueError: they are damaged; decoding them may raise other errors, too.
        """
        counts = self._connection.execute(_COUNTS + where, values).fetchall()
        if not counts:  # a new episode, as nearly always; saves the recursive query
            return {}
        found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in self._connection.execute(_READ.format(where=where), values):
            found.setdefault(row[:3], []).append(row[3:])
        for *key, count in counts:
            if len(found.get(tuple(key), ())) != count:
                raise ValueError(f"not all {count} events of {Key(*key)} are there")
        for rows in found.values():
            rows.sort()  # by number
        flat = [EventRow(*row[1:]) for rows in found.values() for row in rows]
        events = iter(decode_events(flat, self.blobs))
        return {Key(*key): list(islice(events, len(rows))) for key, rows in found.items()}

    def _tail(self, key: Key) -> _Tail:
        row = self._connection.execute(
            f"SELECT id, last, calls, steps FROM record{OF_KEY}", parts(key)
        ).fetchone()
        if row is None:
            tail = _Tail(self._next("record"), key, stored=False)
        else:
            tail = _Tail(row[0], key, True, *row[1:])
        self._tails[key] = tail
        return tail

    def _next(self, table: str) -> int:
        """Return the next number in a table, counted in memory because a single process writes."""
        if table not in self._used:
            found = self._connection.execute(f"SELECT max(id) FROM {table}").fetchone()
            self._used[table] = found[0] or 0
        self._used[table] += 1
        return self._used[table]


def parts(key: Key) -> tuple[str, int, int]:
    """Return a key as columns of the tables."""
    return key.phase, key.group, key.member
