"""The workers of a run on a cluster, as its driver notes them for the viewer and for metrics.

A document of the run, written when something changes, at most once a second. It tells of the
latest process that worked on the run: the workers of an earlier one ended with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaestra.store.database import Database

DOCUMENT = "workers"
KEPT = 50  # workers that are gone, the latest ones


@dataclass(slots=True)
class RosterEntry:
    """One worker."""

    number: int
    machine: str
    pid: int
    joined: str  # UTC, as ISO 8601
    sessions: int = 0  # that it runs
    episodes: int = 0  # that it has ended
    gone: str | None = None  # when, UTC, as ISO 8601
    cause: str = ""  # why it is gone
    moved: int = 0  # sessions that went on elsewhere when it was gone

    @property
    def began(self) -> datetime:
        return datetime.fromisoformat(self.joined)

    @property
    def ended(self) -> datetime | None:
        return None if self.gone is None else datetime.fromisoformat(self.gone)


@dataclass(slots=True)
class Roster:
    """All workers that a driver had, and what it counted."""

    entries: list[RosterEntry] = field(default_factory=list)
    deaths: int = 0  # of workers that were not asked to leave
    driver: int = field(default_factory=os.getpid)  # the process that notes this
    refused: int = 0  # messages of workers that came after their leases were over

    def join(self, number: int, machine: str, pid: int) -> None:
        """Note a worker that is at work."""
        self.entries.append(RosterEntry(number, machine, pid, _now()))

    def count(self, number: int) -> None:
        """Note that a worker has ended an episode."""
        for entry in self.entries:
            entry.episodes += entry.number == number

    def leave(self, number: int, cause: str, moved: int, *, died: bool) -> None:
        """Note that a worker is gone; it may never have joined."""
        self.deaths += died
        for entry in self.entries:
            if entry.number == number:
                entry.gone, entry.cause, entry.moved, entry.sessions = _now(), cause, moved, 0
        gone = [entry for entry in self.entries if entry.gone is not None]
        for entry in gone[:-KEPT]:
            self.entries.remove(entry)

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
        """The workers that are at work."""
        return [entry for entry in self.entries if entry.gone is None]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
