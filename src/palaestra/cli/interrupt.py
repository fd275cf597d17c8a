"""Interrupted work: Ctrl-C, and errors whose cause can be fixed before resuming.

The first Ctrl-C stops cleanly, the second one immediately. A closed terminal stops nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from palaestra.core.errors import (
    ClusterFailed,
    InfrastructureFault,
    InputError,
    TooManyFaults,
    WorkersUnavailable,
)

T = TypeVar("T")

TAKE_OVER = "with --resume: take the run from a process that is frozen or cannot be reached"
ECHO = 1.0  # seconds; wrappers such as `timeout` and `make` repeat a signal to the whole group
STOPPING = "\nStopping; a second Ctrl-C stops at once.\n"


class Stopped(Exception):
    """The work was interrupted and has cleaned up."""


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop.

    Raises:
        Stopped: Ctrl-C (or SIGTERM) arrived, and `work` was cancelled.
        KeyboardInterrupt: a second one arrived before `work` had cleaned up.
    """
    signals: list[float] = []  # when they arrived

    async def guarded() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int, frame: FrameType | None) -> None:
            signals.append(time.monotonic())
            if len(signals) == 1:
                loop.call_soon_threadsafe(task.cancel)
                with suppress(OSError):  # `print` may not be entered twice
                    os.write(2, STOPPING.encode())
            elif signals[-1] - signals[0] > ECHO:
                raise KeyboardInterrupt

        # Not `add_signal_handler`: an event loop that computes would call it too late.
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            # Handled, not ignored: child processes would inherit SIG_IGN.
            loop.add_signal_handler(signal.SIGHUP, _ignore_hangup)
        try:
            return await task
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if signals:
            raise Stopped from None
        raise


@contextmanager
def unbegun() -> Iterator[None]:
    """Note on an interruption that nothing was begun, unless it says otherwise."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not hasattr(error, "__notes__"):
            error.add_note("Nothing was begun; give the same command again.")
        raise


@contextmanager
def resumable(command: str, folder: Path) -> Iterator[None]:
    """Add the resuming command to interruptions and to errors whose cause can be fixed.

    Nothing is added before `folder` holds a run.
    """
    try:
        yield
    except (
        ClusterFailed,
        InfrastructureFault,
        TooManyFaults,
        WorkersUnavailable,
        KeyboardInterrupt,
    ) as error:
        if (folder / "run.json").is_file():  # written last
            error.add_note(f"Finished work is kept. Resume with: {command}")
        raise


def resuming(command: str, folder: Path) -> str:
    """Return what to type to resume the run in `folder`."""
    return f"{called()} {command} --resume {shlex.quote(str(folder))}"


def check_take_over(options: argparse.Namespace) -> None:
    """Raise InputError for --take-over with a new run."""
    if options.take_over:
        raise InputError("--take-over has no effect without --resume RUN; add it, or drop this.")


def called() -> str:
    """Return the command that calls palaestra, even if its environment is not active."""
    if shutil.which("palaestra"):
        return "palaestra"
    script = Path(sys.argv[0])
    if script.name == "palaestra":
        return shlex.quote(str(script))
    return f"{shlex.quote(sys.executable)} -m palaestra"


def _ignore_hangup() -> None:
    """Keep working without a terminal."""
