"""Group commit: all writes in one round of the event loop become one transaction.

A transaction costs as much as writing dozens of rows, so hundreds of sessions share one.
Each session waits for the commit, so no result is visible before it is stored. A single
session waits for no other: it commits as soon as it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator


class Commit:
    """The commit of one round; awaiting it ends once it has happened, or raises why it failed.

    A caller that awaits it late, or never, costs nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, hasten: Callable[[], None]) -> None:
        """Begin a round of an event loop; `hasten` may end it before the next round."""
        self.loop, self._hasten = loop, hasten
        self.over = False  # whether it has happened or failed
        self._error: BaseException | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[asyncio.Future[None] | None, None, None]:
        if not self.over:
            self._hasten()
            yield from self._ending()
        if self._error is not None:
            raise self._error

    def _ending(self) -> Generator[asyncio.Future[None] | None, None, None]:
        if self.over:
            yield None  # two rounds of the loop, as for all who wait: in them others act on it
            yield None
            return
        future = self.loop.create_future()
        self._waiting.append(future)
        yield from future

    def end(self, error: BaseException | None = None) -> None:
        """Let all who wait go on, or raise an error in each of them."""
        self.over, self._error = True, error
        for future in self._waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


class CommitGroup:
    """The callers that wait for the next commit."""

    def __init__(
        self,
        commit: Callable[[], asyncio.Future[None] | None],
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call `commit` to write all pending data; it may have none.

        It returns what callers wait for beyond it (copies on other machines), or None. While
        `alone` holds, no other caller is to be waited for.
        """
        self._commit, self._alone = commit, alone
        self._next: Commit | None = None  # of the round that has begun

    def join(self) -> Commit | None:
        """Join the next commit; return it.

        None outside of an event loop, where it has already happened.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return None
        if self._next is not None and self._next.loop is not loop:
            self.flush()  # that loop has ended
            return None
        if self._next is None:
            self._next = Commit(loop, self._hasten)
            loop.call_soon(self._round)
        return self._next

    def flush(self) -> None:
        """Commit now; an error is raised here and in all who wait."""
        error = self._end()
        if error is not None:
            raise error

    def _round(self) -> None:
        if self._next is not None:
            self._end()  # who waits raises its error

    def _end(self) -> Exception | None:
        """Commit, let all who wait go on, and return the error, if any."""
        ending, self._next = self._next, None
        try:
            copied = self._commit()
        except Exception as error:
            if ending is not None:
                ending.end(error)
            return error
        if ending is None:
            return None
        if copied is None:
            ending.end()
        else:
            copied.add_done_callback(lambda done: ending.end(done.exception()))
        return None

    def _hasten(self) -> None:
        if self._alone():
            self._round()
