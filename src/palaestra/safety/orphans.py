"""Processes that outlive whoever started them: they come to us, and none stays behind as a zombie.

When a sandbox's supervisor ends before its program's last process, the kernel hands that one to the
next process above that asked for orphans, or to the first one of the machine or container. That one
may be no init that reaps them, but a training run; so each process asks for its own as long as
sandboxed programs run below it. Reaped is only what nobody else can be waiting for: see `_adopted`.
Source: Linux `prctl(2)`, PR_SET_CHILD_SUBREAPER; `wait(2)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterable

from palaestra.safety.usage import stat

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_STATE, _SESSION = 0, 3  # fields of /proc/PID/stat, counted from the third on


_lock = threading.Lock()
_asked = 0  # how often `adopt` was called without its `release`
_before = 0  # whether somebody else had asked before


def adopt() -> None:
    """Have orphans among this process's descendants handed to it, until `release`."""
    global _asked, _before
    if sys.platform != "linux":
        return
    with _lock:
        if _asked == 0:
            _before = _adopts()
        _asked += 1
        _set(1)  # each time, for a fork does not inherit it


def release() -> None:
    """What `adopt` asked for is no longer needed."""
    global _asked
    if sys.platform != "linux":
        return
    with _lock:
        _asked -= 1
        if _asked == 0:
            _set(_before)


def _set(adopts: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0)


def _adopts() -> int:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value


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
