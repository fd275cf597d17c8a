"""The snapshot of a world of apps as what differs from the one in which nothing has happened."""

from __future__ import annotations

import zlib

from palaestra.environments.shared.changed_pages import changed, difference


def shortened(snapshot: bytes, begun: bytes) -> bytes:
    """Return what turns the snapshot of a world's beginning into a later one of the same world."""
    head, rows = _parts(snapshot)
    packed = zlib.compress(head, 9)
    return len(packed).to_bytes(4, "big") + packed + difference(rows, _parts(begun)[1])


def whole(short: bytes, begun: bytes) -> bytes:
    """Return the snapshot that `shortened` was given."""
    end = 4 + int.from_bytes(short[:4], "big")
    return zlib.decompress(short[4:end]) + changed(short[end:], _parts(begun)[1])


def _parts(snapshot: bytes) -> tuple[bytes, bytes]:
    """Return what a world's snapshot has before its database, and the database."""
    end = snapshot.index(b"\n", snapshot.index(b"\n") + 1) + 1
    return snapshot[:end], snapshot[end:]
