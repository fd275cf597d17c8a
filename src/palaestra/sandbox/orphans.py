"""Orphans: processes that outlive their parents are adopted by this process and reaped.

When a sandbox's supervisor ends before its program's last process, the kernel reparents that one to
the nearest ancestor that is a subreaper, or to process 1 of the machine or container. Process 1 may
not be an init that reaps orphans, but a training run. So each process is a subreaper as long as
sandboxed programs run below it. It reaps only processes that no other code can be waiting for: see
`_adopted`. Source: Linux `prctl(2)`, PR_SET_CHILD_SUBREAPER; `wait(2)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterable

from palaestra.sandbox.process_usage import stat

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_STATE, _SESSION = 0, 3  # fields of /proc/PID/stat, counted from the third on


_lock = threading.Lock()
_asked = 0  # calls of `adopt` without their `release`
_before = 0  # whether this process was a subreaper before


def adopt() -> None:
    """Make this process the subreaper of its descendants, until `release`."""
    global _asked, _before
    if sys.platform != "linux":
        return
    with _lock:
        if _asked == 0:
            _before = _adopts()
        _asked += 1
        _set(1)  # each time, because a fork does not inherit it


def release() -> None:
    """Undo one `adopt`."""
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
    """Reap orphans that have ended; `known` are further candidates, reaped if children."""
    if sys.platform != "linux":
        return
    for pid in {*known, *_adopted()}:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def _adopted() -> list[int]:
    """Return children that have ended and were started by another process.

    A child started by this process is in its session, or leads a session of its own.
    """
    own = stat("self")
    try:
        # Orphans become children of the main thread.
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
