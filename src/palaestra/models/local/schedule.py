"""Schedules: which requests go first when more are pending than fit.

A schedule orders the waiting requests, and gives each request a level: only a request of a lower
level displaces a running one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

from palaestra.core.errors import UnknownName
from palaestra.models.local.request import Request

ScheduleName = Literal["fcfs", "attained"]


class Schedule(Protocol):
    """The order of requests; the clock counts the tokens that the engine has run."""

    def level(self, request: Request, clock: int) -> int:
        """Return the request's level, at least 0; lower ones displace higher ones."""

    def order(self, request: Request, clock: int) -> tuple[int, int]:
        """Return a sort key; lower ones go first, equal ones in the order of submission."""

    def served(self, request: Request, tokens: int) -> None:
        """Record that the engine has run `tokens` tokens of the request."""


class FirstComeFirstServed:
    """A schedule in which all requests are equal."""

    def level(self, request: Request, clock: int) -> int:
        return 0

    def order(self, request: Request, clock: int) -> tuple[int, int]:
        return 0, 0

    def served(self, request: Request, tokens: int) -> None:
        pass


@dataclass(slots=True)
class _Program:
    number: int  # in the order of their first requests
    service: int = 0  # tokens


class AttainedService:
    """A schedule in which programs with less attained service go first; the older one on ties.

    An episode's calls form one program. A short episode does not wait behind every call of long
    ones, and an episode that has begun is completed. Service is counted in tokens run for any
    call of the program. Levels are wide (below 1, 8, 64 … quanta), so that programs with similar
    service do not displace each other, and long ones do not all run at once. A request that has
    waited `patience` times the service of its program (at least one quantum) goes first until it
    is answered, which prevents starvation.

    Source: program-level attained service of Autellix (Luo et al. 2025). There the clock is
    time, and calls of a level are served as they come; here it is tokens, so that equal runs
    schedule equally.
    """

    def __init__(self, quantum: int = 128, patience: int = 64, programs: int = 100_000) -> None:
        """Begin with no service counted.

        Args:
            quantum: tokens of service within which programs count as equal.
            patience: see above; in tokens of all programs per token of the program's own.
            programs: how many are remembered; the least recently used is forgotten first.
        """
        self.quantum, self.patience, self.programs = quantum, patience, programs
        self._known: OrderedDict[Hashable, _Program] = OrderedDict()
        self._count = 0

    def level(self, request: Request, clock: int) -> int:
        service = self._program(request).service
        waiting = request.past is None
        if waiting and clock - request.since > self.patience * max(service, self.quantum):
            request.urgent = True
        return 0 if request.urgent else -(-(service // self.quantum).bit_length() // 3)

    def order(self, request: Request, clock: int) -> tuple[int, int]:
        return self.level(request, clock), self._program(request).number

    def served(self, request: Request, tokens: int) -> None:
        self._program(request).service += tokens
        self._known.move_to_end(request.program)

    def _program(self, request: Request) -> _Program:
        found = self._known.get(request.program)
        if found is None:
            found = self._known[request.program] = _Program(self._count)
            self._count += 1
            if len(self._known) > self.programs:
                self._known.popitem(last=False)
        return found


def schedule_of(name: str) -> Schedule:
    """Return the schedule of that name.

    Raises:
        UnknownName: there is no such schedule.
    """
    if name == "fcfs":
        return FirstComeFirstServed()
    if name == "attained":
        return AttainedService()
    raise UnknownName("schedule", name, ("fcfs", "attained"))
