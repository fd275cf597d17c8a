"""How a worker process ended, and whether its environments may have been the cause.

The signals of `OUTSIDE` are sent by other processes. Any other signal, like an exit status, is
caused by the program itself.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
STANDSTILL = 5.0  # seconds without running after which this process cannot tell the cause


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended."""

    status: int | None  # minus the signal that ended it; None: unknown
    ours: bool  # whether this process ended it
    paused: float  # seconds in which this process did not run since its last contact

    @property
    def from_outside(self) -> bool:
        """Whether another process ended it, such as the kernel when memory runs out.

        A worker that was stopped together with this process may have exited as an orphan.
        """
        killed = self.status in {-number for number in OUTSIDE}
        return not self.ours and (killed or self.paused > STANDSTILL)

    def __str__(self) -> str:
        if self.status is None or self.status >= 0:
            return f"exit status {self.status}"
        return f"killed by {signal.Signals(-self.status).name}"
