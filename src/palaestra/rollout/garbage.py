"""Python's garbage collector during rollouts.

A rollout keeps many small objects (messages, calls, steps of a thousand sessions) and makes hardly
any cycles. With Python's own thresholds the collector walks over all of them again and again: at
1,000 sessions it took almost half of the harness's time per turn (`benchmarks/overhead.py`).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (20_000, 20, 100)  # new objects, and collections of younger generations, before one

_lock = threading.Lock()
_usual: list[tuple[int, int, int]] = []  # of each rollout under way; the first has the program's


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect garbage more rarely, unless the program collects even less; rollouts may overlap."""
    with _lock:
        _usual.append(_usual[0] if _usual else gc.get_threshold())
        if gc.get_threshold()[0] and gc.get_threshold() < THRESHOLDS:
            gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            before = _usual.pop()
            if not _usual:
                gc.set_threshold(*before)
