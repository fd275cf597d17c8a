"""A recording: the events of one episode, those of an earlier life first and then the new ones.

An episode that a crash cut off is lived again from what was written of it: whatever happens must be
what happened then, until the record ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from palaestra.core.episode import Key, Step
from palaestra.core.graph import Call
from palaestra.core.journal import Event, Journal, ReplayMismatch

E = TypeVar("E", Call, Step)
_OTHERWISE = {Call: "call {} asks something else", Step: "step {} led somewhere else"}


class Recording:
    """The events of the episode `key`."""

    def __init__(self, key: Key, journal: Journal | None, past: Sequence[Event]) -> None:
        """Live `past` again first; without a journal, nothing is written."""
        self._key, self._journal, self._past = key, journal, deque(past)

    @property
    def left(self) -> int:
        """How many events of the earlier life have not happened again yet."""
        return len(self._past)

    def again(self, kind: type[E], same: Callable[[E], bool]) -> E | None:
        """The next event of the earlier life; None once that is over.

        Raises:
            ReplayMismatch: it is of another kind than `kind`, or not the `same`; it is still next.
        """
        if not self._past:
            return None
        event = self._past[0]
        if not isinstance(event, kind):
            raise ReplayMismatch(f"{self._key}: a {kind.__name__} happens, {event} was recorded")
        if not same(event):
            raise ReplayMismatch(f"{self._key}: {_OTHERWISE[type(event)].format(event.index)}")
        self._past.popleft()
        return event

    def write(self, event: Event) -> Awaitable[None] | None:
        """Take a new event down; see `Journal.append`."""
        return None if self._journal is None else self._journal.append(self._key, event)
