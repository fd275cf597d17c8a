"""The router: which engine answers which call, and which answers count.

Pure: its owner tells it what happens to engines, and asks it where calls go. Weights have versions;
only an engine that confirmed the version that is wanted gets calls. All calls of a session go to
one engine, which has its earlier tokens in its cache, and so do the sessions of a group, which
begin alike; when their engine dies they move to another one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

SLACK = (
    1.5  # times its fair share of the sessions, above which an engine gets no new ones of a group
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right of one engine to answer one call."""

    number: int
    engine: int  # its birth
    version: int  # of the weights that it had


class Router:
    """Where calls go."""

    def __init__(self, sessions: int) -> None:
        """Begin without engines; `sessions` is how many there are at once at most."""
        self.wanted: int | None = None  # version of the weights
        self.refused = 0  # answers that did not count
        self._versions: dict[int, int] = {}  # that engines confirmed last; others have no calls yet
        self._gone: set[int] = set()  # dead, or about to leave
        self._tickets: set[Ticket] = set()  # whose calls are under way
        self._count, self._sessions = 0, sessions
        # the engine of each session, and of the first session of each group; latest calls last
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._groups: OrderedDict[str, int] = OrderedDict()

    def want(self, version: int) -> None:
        """Serve only engines with this version of the weights from now on."""
        self.wanted = version

    def confirm(self, engine: int, version: int) -> None:
        """Note that an engine has these weights now; does nothing for one that is gone."""
        if engine not in self._gone:
            self._versions[engine] = version

    def retire(self, engine: int) -> None:
        """Note that an engine is about to leave: it still answers the calls that it has."""
        self._gone.add(engine)
        self._versions.pop(engine, None)
        for homes in (self._homes, self._groups):
            for key in [key for key, home in homes.items() if home == engine]:
                del homes[key]

    def lose(self, engine: int) -> list[Ticket]:
        """Note that an engine is dead; return the tickets of calls that have to be asked again."""
        self.retire(engine)
        lost = sorted((t for t in self._tickets if t.engine == engine), key=lambda t: t.number)
        self._tickets.difference_update(lost)
        return lost

    def place(self, session: str, group: str) -> Ticket | None:
        """Return which engine answers a call of a session; None while none may answer it.

        An engine that is about to get the wanted weights is waited for by the sessions that it has:
        moving them would leave it idle, and its caches unused.
        """
        home = self._home(session, group)
        if home is None or self._versions[home] != self.wanted:
            return None
        self._remember(self._homes, session, home)
        self._remember(self._groups, group, self._groups.get(group, home))
        self._count += 1
        ticket = Ticket(self._count, home, self._versions[home])
        self._tickets.add(ticket)
        return ticket

    def accept(self, ticket: Ticket, versions: Sequence[int]) -> bool:
        """Return whether an answer counts, from the version of the weights that sampled each token.

        The call is over, whatever the answer.
        """
        held = ticket in self._tickets
        self._tickets.discard(ticket)
        counts = (
            held
            and bool(versions)
            and self.wanted is not None
            and ticket.version <= min(versions)
            and max(versions) <= self.wanted
        )
        self.refused += not counts
        return counts

    def drop(self, ticket: Ticket) -> None:
        """Note that a call failed, or that nobody waits for it any more."""
        self._tickets.discard(ticket)

    def version(self, engine: int) -> int | None:
        """Return the version of the weights that an engine confirmed last; None before any."""
        return self._versions.get(engine)

    def load(self, engine: int) -> int:
        """Return how many calls of an engine are under way."""
        return sum(ticket.engine == engine for ticket in self._tickets)

    @property
    def serving(self) -> int:
        """How many engines have the weights that are wanted."""
        return sum(version == self.wanted for version in self._versions.values())

    def _remember(self, homes: OrderedDict[str, int], key: str, home: int) -> None:
        homes[key] = home
        homes.move_to_end(key)
        while len(homes) > self._sessions:
            homes.popitem(last=False)  # what has made no call for the longest time

    def _home(self, session: str, group: str) -> int | None:
        """Return the engine that a session has, or should have; None without engines."""
        if session in self._homes:
            return self._homes[session]
        loads = dict.fromkeys(self._versions, 0)
        for home in self._homes.values():
            loads[home] += 1
        if not loads:
            return None
        together = self._groups.get(group)
        if together is not None:
            most = math.ceil(SLACK * self._sessions / len(loads))
            if loads[together] < most:
                return together
        return min(loads, key=lambda one: (loads[one], one))
