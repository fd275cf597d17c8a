"""Group commit: all writes in one round of the event loop become one transaction.

A transaction costs as much as writing dozens of rows, so hundreds of sessions share one.
Each session waits for the commit, so no result is visible before it is stored. A single
session waits for no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence


class CommitGroup:
    """The callers that wait for the next commit."""

    def __init__(self, commit: Callable[[], asyncio.Future[None] | None]) -> None:
        """Call `commit` to write all pending data; it may have none.

        It returns what callers wait for beyond it (copies on other machines), or None.
        """
        self._commit = commit
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that will call `_round`

    def join(self) -> asyncio.Future[None] | None:
        """Join the next commit.

        Returns:
            a future of the commit, which raises if it fails; None outside of an event loop,
            where the commit has already happened.
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
        """Commit now; an error is raised here and in all waiting futures."""
        waiting, self._waiting, self._loop = self._waiting, [], None
        try:
            copied = self._commit()
        except Exception as error:
            _end(waiting, error)
            raise
        if copied is None:
            _end(waiting)
        else:
            copied.add_done_callback(lambda done: _end(waiting, done.exception()))

    def _round(self) -> None:
        with contextlib.suppress(Exception):  # the waiting futures have raised it
            self.flush()


def _end(waiting: Sequence[asyncio.Future[None]], error: BaseException | None = None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
