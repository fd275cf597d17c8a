"""Time and chance of the request that is answered: those of its world.

`django_clock.py` and `trac_server.py` say where applications read them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The time and the random numbers of one request."""

    now: datetime
    random: random.Random


served: ContextVar[Circumstances | None] = ContextVar("served", default=None)
"""Those of the request that is answered now."""


@contextmanager
def at(now: datetime, chance: random.Random) -> Iterator[None]:
    """Let it be a time, with these random numbers, in this thread."""
    token = served.set(Circumstances(now, chance))
    try:
        yield
    finally:
        served.reset(token)


def now() -> datetime:
    """Return the time of the request; the real one where none is answered."""
    found = served.get()
    return datetime.now(UTC) if found is None else found.now
