"""The time in which this process really ran, told by a heartbeat.

A clock on the wall goes on while a process is stopped, its container frozen or its machine so
busy that it has no turn. A thread that beats notices: of the time between two beats, no more
than `MOST` counts. Deadlines for others go by this clock, so that nobody is blamed for an answer
that this process could not hear.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

BEAT = 0.1  # seconds between beats
MOST = 0.5  # seconds that count of those between two beats


class Heartbeat:
    """Counts the seconds in which this process ran."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last, self._total = clock(), 0.0

    def beat(self) -> float:
        """Seconds so far in which this process ran, as far as beats tell."""
        with self._lock:
            now = self._clock()
            self._total += min(now - self._last, MOST)
            self._last = now
            return self._total

    def go_on(self) -> None:
        """Beat until the process ends."""
        while True:
            time.sleep(BEAT)
            self.beat()


_lock = threading.Lock()
_heart: Heartbeat | None = None  # of this process, once it was asked for


def ran() -> float:
    """Seconds in which this process ran since this was first asked; only differences mean much."""
    global _heart
    if _heart is None:
        with _lock:
            if _heart is None:
                _heart = Heartbeat()
                threading.Thread(target=_heart.go_on, name="heartbeat", daemon=True).start()
    return _heart.beat()


@asynccontextmanager
async def timeout(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Like `asyncio.timeout`, of so many seconds in which this process ran; None: no limit."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def look(end: float) -> None:
        nonlocal timer
        left = end - ran()
        if left > 0:
            timer = loop.call_later(left, look, end)
        else:
            clock.reschedule(loop.time())

    async with asyncio.timeout(None) as clock:
        if seconds is not None:
            look(ran() + seconds)
        try:
            yield clock
        finally:
            if timer is not None:
                timer.cancel()
