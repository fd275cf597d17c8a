"""The guard, a separate process that kills the external programs when palaestra has died.

palaestra gives every program the same mark in its environment, which child processes inherit. When
palaestra ends for any reason, including SIGKILL, the pipe to the guard closes. Then the guard kills
all processes with the mark, and their descendants. Nothing has to be announced when a program
starts, so there is no moment at which palaestra's death would leave one behind.
"""

from __future__ import annotations

import contextlib
import sys

import psutil

MARK = "PALAESTRA_GUARDED_BY"
_ROUNDS = 10  # a process may start another while the processes are listed


def marked(mark: str) -> set[psutil.Process]:
    """Return the living processes that carry the mark, and all their descendants."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:  # raises for a zombie, which has none
                found |= {process, *process.children(recursive=True)}
    return found


def main() -> None:
    """Wait until the pipe closes, then kill what carries the mark given as the argument."""
    sys.stdin.read()
    for _ in range(_ROUNDS):
        left = marked(sys.argv[1])
        if not left:
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    main()
