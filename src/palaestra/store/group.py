"""Group commit: what arrives in one round of the event loop becomes one transaction.

A transaction costs as much as writing dozens of rows. Hundreds of sessions share one;
each of them waits for it, so nothing is seen before it is stored, and a lone session
waits for no one else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class CommitGroup:
    """Those who wait for the next commit."""

    def __init__(self, commit: Callable[[], None]) -> None:
        """Let `commit` write what has gathered; nothing, where nothing has."""
        self._commit = commit
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that will call `_round`

    def join(self) -> asyncio.Future[None] | None:
        """Take part in the next commit.

        Returns:
            what to wait for, and what raises if the commit fails; None outside of an event
            loop, where the commit has just been made.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return None
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(self._round)
        future = loop.create_future()
        self._waiting.append(future)
        return future

    def flush(self) -> None:
        """Commit now; raises what went wrong, to those who wait as well."""
        waiting, self._waiting, self._loop = self._waiting, [], None
        try:
            self._commit()
        except Exception as error:
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
            raise
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _round(self) -> None:
        with contextlib.suppress(Exception):  # whoever waits has been told
            self.flush()
