"""Ctrl-C: the first one stops cleanly, the second one at once. A closed terminal stops nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The work was interrupted and has put its things in order."""


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop.

    Raises:
        Stopped: Ctrl-C (or a polite kill) arrived, and `work` was cancelled.
    """
    stopped = False

    async def guarded() -> T:
        nonlocal stopped
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            nonlocal stopped
            stopped = True
            task.cancel()
            loop.remove_signal_handler(number)  # the next one ends the process

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            # Heard, not ignored: programs that are started would inherit that.
            loop.add_signal_handler(signal.SIGHUP, _go_on)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if stopped:
            raise Stopped from None
        raise


def _go_on() -> None:
    """Its terminal is gone, the work is not."""
