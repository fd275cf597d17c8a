"""The C library's heap in a process that learns.

glibc gives large blocks back to the system when they are freed, and gets them anew: in every
pass over a batch the kernel would hand out and clear all activations again, page by page, which
takes a tenth of an optimiser step (see docs/results/performance.md). So freed memory stays with
the process, as torch keeps it on CUDA; training gives it back every few steps (`malloc_trim`).
"""

from __future__ import annotations

import ctypes
import os

OPTIONS = {  # by the numbers of malloc.h
    -4: 0,  # M_MMAP_MAX: no block apart from the heap
    -1: -1,  # M_TRIM_THRESHOLD: the heap's end is never given back on its own
    -2: 64 << 20,  # M_TOP_PAD: it grows in large steps
    -8: 1,  # M_ARENA_MAX: threads share it; heaps of their own are small and come and go
}


def keep_freed_memory() -> None:
    """From now on; does nothing where the user tunes the heap, or where it is not glibc's."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for option, value in OPTIONS.items():
        mallopt(option, value)
