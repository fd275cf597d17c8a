"""A worker's deadline, which counts only time in which its reply could have been received."""

from __future__ import annotations

from palaestra.core.budget import ran
from palaestra.rollout.processes import queued_seconds


class Deadline:
    """The deadline of a worker's reply, in seconds from construction.

    Two kinds of time do not count: time in which this process did not run, and time in which the
    worker was ready to run but had no processor (where the system reports it: Linux).
    """

    def __init__(self, seconds: float, pid: int) -> None:
        self._end = ran() + seconds
        self._pid = pid
        self._queued: float | None = None  # seconds without a processor before the first look

    def left(self) -> float:
        """Return a lower bound of the seconds left; 0 or less once the deadline has passed."""
        left = self._end - ran()
        if self._queued is None:
            self._queued = queued_seconds(self._pid)
        if left > 0:
            return left
        return left + queued_seconds(self._pid) - self._queued
