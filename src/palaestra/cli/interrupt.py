"""How work ends before its time: by Ctrl-C, or by what can be mended before the work goes on.

The first Ctrl-C stops cleanly, the second one at once. A closed terminal stops nothing.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from palaestra.core.errors import InfrastructureFault, TooManyFaults, WorkersUnavailable

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


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Add to an error whose cause can be mended how to go on afterwards."""
    try:
        yield
    except (InfrastructureFault, TooManyFaults, WorkersUnavailable) as error:
        error.add_note(f"Go on with: {command}")
        raise


def _go_on() -> None:
    """Its terminal is gone, the work is not."""
