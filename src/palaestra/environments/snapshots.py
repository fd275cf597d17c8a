"""Snapshots that say whose they are, so that no world restores another one's."""

from __future__ import annotations

from palaestra.core.errors import InputError

MARK = "palaestra-snapshot"


def sealed(world: str, version: str, body: bytes) -> bytes:
    """The body behind a line that names the world (an id) and the version of its package."""
    return f"{MARK} {world} {version}\n".encode() + body


def opened(snapshot: bytes, world: str, version: str) -> bytes:
    """The body of a snapshot of that world.

    Raises:
        InputError: it is none, another world's, or of another version.
    """
    head, found, body = snapshot.partition(b"\n")
    words = head.decode(errors="replace").split(" ")
    if not found or len(words) != 3 or words[0] != MARK:
        raise InputError(
            f"These {len(snapshot)} bytes are no snapshot of '{world}'; "
            "give what its snapshot() returned."
        )
    if words[1] != world:
        raise InputError(
            f"A snapshot of '{words[1]}' cannot be restored in '{world}'; "
            f"make '{words[1]}' instead."
        )
    if words[2] != version:
        raise InputError(
            f"A snapshot of '{world}' from version {words[2]} of its package cannot be restored in "
            f"version {version}; install {words[2]}, or play the episode again."
        )
    return body
