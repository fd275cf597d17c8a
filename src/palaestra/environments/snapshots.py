"""Labelled snapshots: an environment refuses to restore another one's."""

from __future__ import annotations

from palaestra.core.errors import InputError

MARK = "palaestra-snapshot"


def sealed(environment: str, version: str, body: bytes) -> bytes:
    """Prefix the body with a line that names the environment and the version of its package."""
    return f"{MARK} {environment} {version}\n".encode() + body


def opened(snapshot: bytes, environment: str, version: str) -> bytes:
    """Return the body of a snapshot of that environment.

    Raises:
        InputError: it is not a snapshot, or of another environment or version.
    """
    head, found, body = snapshot.partition(b"\n")
    words = head.decode(errors="replace").split(" ")
    if not found or len(words) != 3 or words[0] != MARK:
        raise InputError(
            f"These {len(snapshot)} bytes are not a snapshot of '{environment}'; "
            "pass what its snapshot() returned."
        )
    if words[1] != environment:
        raise InputError(
            f"A snapshot of '{words[1]}' cannot be restored in '{environment}'; "
            f"make '{words[1]}' instead."
        )
    if words[2] != version:
        raise InputError(
            f"A snapshot of '{environment}' from version {words[2]} of its package cannot be "
            f"restored in version {version}; install {words[2]}, or run the episode again."
        )
    return body
