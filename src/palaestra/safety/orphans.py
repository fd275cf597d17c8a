"""Processes that outlive whoever started them: they come to us, and none stays behind as a zombie.

When a sandbox's supervisor ends before its program's last process, the kernel hands that one to the
next process above that asked for orphans, or to the first one of the machine or container. That one
may be no init that reaps them, but a training run; so each process that starts sandboxes asks for
its own. Reaped is only what nobody else can be waiting for: see `_adopted`.
Source: Linux `prctl(2)`, PR_SET_CHILD_SUBREAPER; `wait(2)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

from palaestra.safety.usage import stat

_PR_SET_CHILD_SUBREAPER = 36
_STATE, _SESSION = 0, 3  # fields of /proc/PID/stat, counted from the third on


def adopt() -> None:
    """Have orphans among this process's descendants handed to it; forks do not inherit that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(known: Iterable[int] = ()) -> None:
    """Take the exit statuses of orphans that have ended; `known`: who else is one, if a child."""
    if sys.platform != "linux":
        return
    for pid in {*known, *_adopted()}:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def _adopted() -> list[int]:
    """Children that have ended and were started by another process.

    A child of our own is in our session, or in one that bears its own number.
    """
    own = stat("self")
    try:
        # Orphans are handed to the first thread.
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            children = file.read().split()
    except OSError:
        return []
    found = []
    for pid in map(int, children):
        fields = stat(pid)
        if own is None or fields is None or fields[_STATE] != b"Z":
            continue
        if fields[_SESSION] != own[_SESSION] and int(fields[_SESSION]) != pid:
            found.append(pid)
    return found
