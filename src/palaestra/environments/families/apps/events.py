"""What happens in a world while time passes: other people call APIs.

An event has a time: once, every so many seconds, at random moments (a Poisson process), or some
seconds after a condition on the world's rows first holds. What it does is a generator like a
reference: it yields calls, and is sent what each was answered. All times are seconds since the
world began; events of the same second happen in the order of the schedule.

A schedule belongs to a task. What has happened and what is due is its state, which is JSON.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.environments.families.apps.state import State

HOUR = 3600
Deed = Generator[tuple[str, Mapping[str, Any]], Any, Any]
"""Yields calls, as an API (`app.name`) and its arguments; is sent what each was answered."""


class Timing(ABC):
    """When an event happens."""

    def first(self) -> int | None:
        """Return when it first happens; None: not before `begins` says so."""
        return None

    def begins(self, state: State) -> int | None:
        """Return in how many seconds it happens, asked after each change until there is one."""
        return None

    @abstractmethod
    def following(self, times: int, second: int) -> int | None:
        """Return when it happens next, after it happened `times` times, last in that second."""


@dataclass(frozen=True, slots=True)
class At(Timing):
    """Once, in that second."""

    second: int

    def first(self) -> int:
        return self.second

    def following(self, times: int, second: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Every(Timing):
    """From a second on, again and again."""

    start: int
    period: int  # at least 1

    def first(self) -> int:
        return self.start

    def following(self, times: int, second: int) -> int:
        return second + self.period


@dataclass(frozen=True, slots=True)
class Poisson(Timing):
    """At random, so many times an hour on average; the gaps between them are exponential."""

    per_hour: float
    seed: int | str

    def first(self) -> int:
        return self.following(0, 0)

    def following(self, times: int, second: int) -> int:
        gap = random.Random(f"gap {self.seed} {times}").expovariate(self.per_hour / HOUR)
        return second + max(1, round(gap))


@dataclass(frozen=True, slots=True)
class Once(Timing):
    """Some seconds after a condition on the rows first holds, whether or not it still does."""

    holds: Callable[[State], bool]
    after: int = 0

    def begins(self, state: State) -> int | None:
        return self.after if self.holds(state) else None

    def following(self, times: int, second: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that another person does."""

    name: str  # of its own within a schedule
    person: int  # who does it: the id in `supervisor.person`
    timing: Timing
    deed: Callable[[int], Deed]  # from how often it happened before; it calls no clock


@dataclass(slots=True)
class Progress:
    """How far one event is."""

    due: int | None  # the second in which it happens next
    times: int = 0  # how often it was due
    seconds: tuple[int, ...] = ()  # in which it happened, and no service refused it


class Schedule:
    """The events of a world, and how far each of them is."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.events = tuple(events)
        self.progress = [Progress(event.timing.first()) for event in self.events]

    def next(self, latest: int) -> int | None:
        """Return the number of the event that happens next, up to a second; None: none does."""
        waiting = [
            (one.due, number)
            for number, one in enumerate(self.progress)
            if one.due is not None and one.due <= latest
        ]
        return min(waiting)[1] if waiting else None

    def happened(self, number: int, second: int, done: bool) -> None:
        """Note that an event was due; `done`: no service refused it."""
        one, event = self.progress[number], self.events[number]
        one.times += 1
        one.due = event.timing.following(one.times, second)
        if done:
            one.seconds = (*one.seconds, second)

    def watch(self, state: State, now: int) -> None:
        """Look whether the conditions of events hold that have not happened and are not due."""
        for event, one in zip(self.events, self.progress, strict=True):
            if (
                one.due is None
                and not one.times
                and (wait := event.timing.begins(state)) is not None
            ):
                one.due = now + wait

    def cancel(self, name: str) -> None:
        """Keep the event of that name from happening again."""
        one = self.of(name)
        one.due, one.times = None, one.times + 1

    def of(self, name: str) -> Progress:
        """Return how far the event of that name is."""
        return self.progress[[event.name for event in self.events].index(name)]

    def seconds_of(self, name: str) -> tuple[int, ...]:
        """Return the seconds in which the event of that name happened."""
        return self.of(name).seconds

    def next_second(self) -> int | None:
        """Return the second in which something happens next that has a time; None: nothing has."""
        return min((one.due for one in self.progress if one.due is not None), default=None)

    def silent(self) -> list[str]:
        """Return the names of the events that have not happened."""
        return [
            e.name for e, one in zip(self.events, self.progress, strict=True) if not one.seconds
        ]

    def fork(self) -> Schedule:
        """Return a copy that goes on by itself."""
        other = Schedule(self.events)
        other.restore(self.saved())
        return other

    def saved(self) -> list[Any]:
        """Return how far the events are, as JSON can hold it."""
        return [[one.due, one.times, list(one.seconds)] for one in self.progress]

    def restore(self, saved: Sequence[Any]) -> None:
        """Return to what `saved` returned."""
        self.progress = [Progress(due, times, tuple(seconds)) for due, times, seconds in saved]
