"""Pages of a database that differ from those of another, compressed: a small world's snapshot."""

from __future__ import annotations

import json
import zlib

SIZE = 4096  # bytes of a page


def difference(data: bytes, base: bytes) -> bytes:
    """Return what turns `base` into `data`."""
    starts = range(0, len(data), SIZE)
    changed = [at for at in starts if data[at : at + SIZE] != base[at : at + SIZE]]
    head = json.dumps([len(data), changed]).encode()
    pages = b"".join(data[at : at + SIZE] for at in changed)
    return zlib.compress(head + b"\n" + pages, 9)


def changed(difference: bytes, base: bytes) -> bytes:
    """Return the data of a difference to the same base."""
    head, _, pages = zlib.decompress(difference).partition(b"\n")
    size, starts = json.loads(head)
    data = bytearray(base[:size].ljust(size, b"\0"))
    for start in starts:
        length = min(SIZE, size - start)
        data[start : start + length], pages = pages[:length], pages[length:]
    return bytes(data)
