"""Standard output and error that may end before the work does.

A reader that has seen enough (`head`, a pager) or a terminal that was closed takes nothing but the
text away: what is still said goes nowhere, the work goes on, and its exit code is its own.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class _Output(io.FileIO):
    """A descriptor that leads nowhere from when nobody is left to read it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._terminal = self.isatty()

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            left = error.errno == errno.EPIPE
            closed = self._terminal and error.errno == errno.EIO
            if not (left or closed):
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # for processes started from now on, too
        os.close(nowhere)
        return len(data)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Make standard output and error outlive their readers, unless somebody has replaced them."""
    _fill()
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr, 2)
    try:
        yield
    finally:
        for stream, old in zip((sys.stdout, sys.stderr), before, strict=True):
            if stream is not old:
                stream.flush()
        sys.stdout, sys.stderr = before


def _fill() -> None:
    """Let no file of the run get the number of a standard stream that was closed at the start."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lasting(stream: TextIO | None, descriptor: int) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # none: it was closed at the start
        return open(os.devnull, "w", encoding="utf-8")
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
