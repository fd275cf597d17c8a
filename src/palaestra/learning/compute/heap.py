"""The C library's heap in a process that learns.

glibc returns large blocks to the system when they are freed: in every pass over a batch the
kernel would hand out and clear all activations again, page by page, which takes a tenth of an
optimiser step (see docs/results/performance.md). So freed memory stays with the process, as
torch keeps it on CUDA; training returns it every few steps (`malloc_trim`).
"""

from __future__ import annotations

import ctypes
import os

OPTIONS = {  # by the numbers of malloc.h
    -4: 0,  # M_MMAP_MAX: no block apart from the heap
    -1: -1,  # M_TRIM_THRESHOLD: the end of the heap is never returned automatically
    -2: 64 << 20,  # M_TOP_PAD: it grows in large steps
    -8: 1,  # M_ARENA_MAX: threads share one heap; heaps per thread are small and short-lived
}


def keep_freed_memory() -> None:
    """Keep freed memory from now on; do nothing if the user tunes the heap or it is not glibc's."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for option, value in OPTIONS.items():
        mallopt(option, value)
