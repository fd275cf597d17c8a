"""A worker's time to answer: only the time counts in which it could have been heard answering."""

from __future__ import annotations

from palaestra.core.heartbeat import ran
from palaestra.rollout.processes import queued_seconds


class Deadline:
    """When a worker has had so many seconds to answer.

    What does not count: time in which this process did not run, and time in which the worker was
    ready to run and had no processor, since others kept the machine busy (where the system tells:
    Linux).
    """

    def __init__(self, seconds: float, pid: int) -> None:
        self._end = ran() + seconds
        self._pid = pid
        self._queued: float | None = None  # seconds without a processor before the first look

    def left(self) -> float:
        """Seconds that are left at least, 0 or less where none are."""
        left = self._end - ran()
        if self._queued is None:
            self._queued = queued_seconds(self._pid)
        if left > 0:
            return left
        return left + queued_seconds(self._pid) - self._queued
