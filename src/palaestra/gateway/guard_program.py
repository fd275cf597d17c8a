"""The guard, a separate process that kills programs when palaestra has died.

It reads a line when a program starts (`+PID`) and when it has been ended (`-PID`). When palaestra
ends for any reason, including SIGKILL, the pipe closes. Then the guard kills the remaining programs
with all their child processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import psutil


def main() -> None:
    """Track the running programs until the pipe closes, then kill them."""
    left: dict[int, psutil.Process] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        left.pop(pid, None)
        if line.startswith("+"):
            with contextlib.suppress(psutil.Error):
                left[pid] = psutil.Process(pid)
    for program in left.values():
        with contextlib.suppress(psutil.Error):
            family = [program, *program.children(recursive=True)]
            with contextlib.suppress(OSError):
                os.killpg(program.pid, signal.SIGKILL)  # includes orphans
            for one in family:
                with contextlib.suppress(psutil.Error):
                    one.kill()


if __name__ == "__main__":
    main()
