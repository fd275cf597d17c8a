"""A fair lock of a worker: one caller at a time, first come, first served.

Callers that can use another worker stop waiting if the call in progress turns out to be slow.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slow(Exception):
    """The worker is busy with a slow call; the caller's request was not sent."""


class FairLock:
    """The queue of callers that wait for one worker."""

    def __init__(self) -> None:
        self._held = False
        self._slow = False  # the call in progress
        self._waiting: deque[tuple[asyncio.Future[bool], bool]] = deque()  # with `may_leave`

    @property
    def slow(self) -> bool:
        """Whether the call in progress is slow; reset when it ends."""
        return self._slow

    async def acquire(self, may_leave: bool) -> None:
        """Wait for the lock.

        Raises:
            Slow: the call in progress is slow, and the caller may leave.
        """
        if not self._held:
            self._held = True
            return
        if self._slow and may_leave:
            raise Slow
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, may_leave))
        try:
            acquired = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():
                self.release()  # it had just been acquired
            raise
        if not acquired:
            raise Slow

    def release(self) -> None:
        """Release the lock; the next waiting caller acquires it."""
        self._slow = False
        while self._waiting:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._held = False

    def mark_slow(self) -> None:
        """Mark the call in progress as slow, and turn away the callers that may leave."""
        self._slow = True
        for turn, may_leave in self._waiting:
            if may_leave and not turn.done():
                turn.set_result(False)
