"""Leases: who runs which session, and whose writes count.

A session is leased to one worker at a time. A lease is a number that never repeats; a worker sends
it with everything that it writes. When a worker counts as dead its leases end, and its sessions
are leased again, to others. So a worker that was only frozen may wake and write what it likes: its
lease is over, and nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to run one session."""

    number: int
    birth: int  # of the worker


class Leases(Generic[K]):
    """The leases in force, by what is leased."""

    def __init__(self) -> None:
        self.refused = 0  # writes of workers whose lease was over
        self._count = 0
        self._held: dict[Lease, K] = {}
        self._of: dict[K, Lease] = {}

    def grant(self, key: K, birth: int) -> Lease:
        """Lease `key` to a worker; an earlier lease of it ends."""
        self.end(self._of.get(key))
        self._count += 1
        lease = Lease(self._count, birth)
        self._held[lease], self._of[key] = key, lease
        return lease

    def admit(self, lease: Lease) -> bool:
        """Return whether a write under this lease counts; count it as refused if not."""
        admitted = lease in self._held
        self.refused += not admitted
        return admitted

    def end(self, lease: Lease | None) -> None:
        """End a lease; does nothing if it is over."""
        if lease in self._held:
            del self._of[self._held.pop(lease)]

    def end_all(self, birth: int) -> list[K]:
        """End the leases of a worker; return what it held."""
        lost = [lease for lease in self._held if lease.birth == birth]
        keys = [self._held[lease] for lease in lost]
        for lease in lost:
            self.end(lease)
        return keys

    def load(self, birth: int) -> int:
        """Return how many leases a worker holds."""
        return sum(lease.birth == birth for lease in self._held)
