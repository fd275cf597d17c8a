"""A fair lock of a worker: first come, first served, alone or shared.

Callers that can use another worker stop waiting if the call in progress turns out to be slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


class Slow(Exception):
    """The worker is busy with a slow call; the caller's request was not sent."""


@dataclass(frozen=True, slots=True)
class _Caller:
    """A caller that waits."""

    turn: asyncio.Future[bool]  # whether it acquired the lock
    may_leave: bool
    shared: bool


class FairLock:
    """The queue of callers that wait for one worker.

    A caller holds the lock alone, or shares it with others, at most `most` at a time.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._holders = 0
        self.shared = False  # whether its holders share it
        self._slow = False  # a call in progress
        self._waiting: deque[_Caller] = deque()

    @property
    def slow(self) -> bool:
        """Whether a call in progress is slow; reset when one ends."""
        return self._slow

    async def acquire(self, may_leave: bool, shared: bool = False) -> None:
        """Wait for the lock.

        Raises:
            Slow: the call in progress is slow, and the caller may leave. A caller that shares the
                lock does not leave because of others that share it.
        """
        if not self._waiting and self._admits(shared):
            self._take(shared)
            return
        caller = _Caller(asyncio.get_running_loop().create_future(), may_leave, shared)
        if self._slow and self._leaves(caller):
            raise Slow
        self._waiting.append(caller)
        try:
            acquired = await caller.turn
        except asyncio.CancelledError:
            if not caller.turn.cancelled() and caller.turn.result():
                self.release()  # it had just been acquired
            else:
                self._admit()  # callers behind it may share the lock
            raise
        if not acquired:
            raise Slow

    def release(self) -> None:
        """Release the lock; waiting callers acquire it, in their order."""
        self._slow = False
        self._holders -= 1
        self._admit()

    def mark_slow(self) -> None:
        """Mark a call in progress as slow, and turn away the callers that may leave."""
        self._slow = True
        for caller in self._waiting:
            if self._leaves(caller) and not caller.turn.done():
                caller.turn.set_result(False)
        self._admit()

    def _leaves(self, caller: _Caller) -> bool:
        return caller.may_leave and not (caller.shared and self.shared)

    def _admits(self, shared: bool) -> bool:
        return not self._holders or (shared and self.shared and self._holders < self._most)

    def _take(self, shared: bool) -> None:
        self._holders, self.shared = self._holders + 1, shared

    def _admit(self) -> None:
        while self._waiting:
            caller = self._waiting[0]
            if not caller.turn.done():
                if not self._admits(caller.shared):
                    return
                self._take(caller.shared)
                caller.turn.set_result(True)
            self._waiting.popleft()
