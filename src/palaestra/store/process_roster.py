"""The processes of a run on a cluster, as its driver notes them for the viewer and for metrics.

A document of the run, written when something changes, at most once a second. It tells of the
latest driver of the run: the processes of an earlier one ended with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaestra.store.database import Database

DOCUMENT = "processes"
KEPT = 50  # processes that are gone, the latest ones


@dataclass(slots=True)
class RosterEntry:
    """One process."""

    kind: str  # "worker", "engine" or "copy"
    number: int  # of its kind
    machine: str
    pid: int
    joined: str  # UTC, as ISO 8601
    load: int = 0  # sessions of a worker, calls of an engine, batches that a copy has not yet
    done: int = 0  # episodes that a worker has ended, calls or batches that the others have
    gone: str | None = None  # when, UTC, as ISO 8601
    cause: str = ""  # why it is gone
    moved: int = 0  # sessions or calls that went on elsewhere when it was gone

    @property
    def began(self) -> datetime:
        return datetime.fromisoformat(self.joined)

    @property
    def ended(self) -> datetime | None:
        return None if self.gone is None else datetime.fromisoformat(self.gone)


@dataclass(slots=True)
class Roster:
    """All processes that a driver had, and what it counted."""

    entries: list[RosterEntry] = field(default_factory=list)
    deaths: int = 0  # of processes that were not asked to leave
    driver: int = field(default_factory=os.getpid)  # the process that notes this
    refused: int = 0  # messages of workers that came after their leases were over

    def join(self, kind: str, number: int, machine: str, pid: int) -> None:
        """Note a process that is at work."""
        self.entries.append(RosterEntry(kind, number, machine, pid, _now()))

    def count(self, kind: str, number: int) -> None:
        """Note that a worker has ended an episode, or an engine answered a call."""
        for entry in self._named(kind, number):
            entry.done += 1

    def leave(self, kind: str, number: int, cause: str, *, moved: int, died: bool) -> None:
        """Note that a process is gone; it may never have joined."""
        self.deaths += died
        for entry in self._named(kind, number):
            entry.gone, entry.cause, entry.moved, entry.load = _now(), cause, moved, 0
        gone = [entry for entry in self.entries if entry.gone is not None]
        for entry in gone[:-KEPT]:
            self.entries.remove(entry)

    def _named(self, kind: str, number: int) -> list[RosterEntry]:
        return [one for one in self.entries if (one.kind, one.number) == (kind, number)]

    def store(self, database: Database) -> None:
        """Write the document."""
        database.put(DOCUMENT, asdict(self))

    @classmethod
    def read(cls, database: Database) -> Roster | None:
        """Return what a run's driver noted last; None: the run was never on a cluster."""
        found: Any = database.get(DOCUMENT)
        if not found:
            return None
        entries = [RosterEntry(**entry) for entry in found["entries"]]
        return cls(entries, found["deaths"], found["driver"], found["refused"])

    @property
    def present(self) -> Sequence[RosterEntry]:
        """Those that are at work."""
        return [entry for entry in self.entries if entry.gone is None]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
