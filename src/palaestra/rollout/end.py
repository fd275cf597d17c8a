"""How a worker process ended, and whether what it hosted may have been the cause.

The signals of `OUTSIDE` are sent by others; any other one a program brings upon itself, as it
does an exit status.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
STANDSTILL = 5.0  # seconds in which this process stood still, after which it knows too little


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended."""

    status: int | None  # minus the signal that ended it; None: not known
    ours: bool  # whether it was ended here
    stood: float  # seconds in which this process stood still since it last heard of it

    @property
    def from_outside(self) -> bool:
        """Whether somebody else ended it: the kernel that lacks memory, say.

        A worker that was stopped along with this process may have taken itself for an orphan.
        """
        killed = self.status in {-number for number in OUTSIDE}
        return not self.ours and (killed or self.stood > STANDSTILL)

    def __str__(self) -> str:
        if self.status is None or self.status >= 0:
            return f"exit status {self.status}"
        return f"killed by {signal.Signals(-self.status).name}"
