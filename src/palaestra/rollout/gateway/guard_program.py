"""The guard, a process of its own: ends programs whose palaestra is gone.

It reads a line for each program that begins (`+PID`) and that has been ended (`-PID`). Whatever
becomes of palaestra, a kill by the kernel included, the pipe then ends; and so does, with all that
it has started, each program that is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import psutil


def main() -> None:
    """Keep the list until the pipe ends, then end what is on it."""
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
                os.killpg(program.pid, signal.SIGKILL)  # those whose parents have died as well
            for one in family:
                with contextlib.suppress(psutil.Error):
                    one.kill()


if __name__ == "__main__":
    main()
