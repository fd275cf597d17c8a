"""Several pieces of data compressed as one: what is in one of them costs little in another."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 22}]


def compressed(parts: Sequence[bytes]) -> bytes:
    """Return pieces of data as one."""
    head = json.dumps([len(part) for part in parts]).encode()
    return lzma.compress(head + b"\n" + b"".join(parts), lzma.FORMAT_RAW, filters=_FILTERS)


def parts_of(data: bytes) -> list[bytes]:
    """Return the pieces that `compressed` was given."""
    head, _, rest = lzma.decompress(data, lzma.FORMAT_RAW, filters=_FILTERS).partition(b"\n")
    found = []
    for length in json.loads(head):
        found.append(rest[:length])
        rest = rest[length:]
    return found
