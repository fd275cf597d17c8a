"""The line before a worker: one caller at a time, first come, first served.

Whoever could be served elsewhere leaves the line when the one in front turns out to be slow.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slow(Exception):
    """The worker is with a slow call; nothing was asked of it."""


class Line:
    """Those who wait for one worker."""

    def __init__(self) -> None:
        self._held = False
        self._slow = False  # the turn under way
        self._waiting: deque[tuple[asyncio.Future[bool], bool]] = deque()  # and who may leave

    @property
    def slow(self) -> bool:
        """Whether the turn under way is slow; its end ends that, too."""
        return self._slow

    async def enter(self, may_leave: bool) -> None:
        """Wait for one's turn.

        Raises:
            Slow: the call under way is slow, and the caller may leave.
        """
        if not self._held:
            self._held = True
            return
        if self._slow and may_leave:
            raise Slow
        place = asyncio.get_running_loop().create_future()
        self._waiting.append((place, may_leave))
        try:
            served = await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.result():
                self.leave()  # its turn had just come
            raise
        if not served:
            raise Slow

    def leave(self) -> None:
        """End one's turn; the next one's begins."""
        self._slow = False
        while self._waiting:
            place, _ = self._waiting.popleft()
            if not place.done():
                place.set_result(True)
                return
        self._held = False

    def tell_slow(self) -> None:
        """Let those go who may leave: the call under way is slow."""
        self._slow = True
        for place, may_leave in self._waiting:
            if may_leave and not place.done():
                place.set_result(False)
