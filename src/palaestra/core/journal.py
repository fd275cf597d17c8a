"""The journal: where a session writes each event as it happens, and lives it again from.

With it, an episode that a crash cut off goes on: the same calls return the same replies, drawn with
the same seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from typing import Protocol

from palaestra.core.episode import Key, Step
from palaestra.core.errors import PalaestraError
from palaestra.core.graph import Call

Event = Call | Step


class Journal(Protocol):
    """Where a session writes each event as it happens."""

    def append(self, key: Key, event: Event) -> Awaitable[None] | None:
        """Take an event down, after the others of its episode; raises if it cannot be stored.

        Returns:
            what to wait for until the event survives the end of this process; None: it does.
        """


class SessionOver(PalaestraError):
    """Raised into an agent that goes on after its episode has ended; ends `run` cleanly."""


class ReplayMismatch(PalaestraError):
    """The record of an interrupted episode does not fit what is happening now."""


def derive_seed(*parts: object) -> int:
    """A stable 63-bit seed from any printable parts."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
