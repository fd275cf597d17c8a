"""Standard output and error that survive a closed reader.

If a reader (`head`, a pager) or the terminal closes, further output is discarded. The work goes on,
and its exit code is unchanged.
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
    """A descriptor that discards output after its reader has closed."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._terminal = self.isatty()

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            reader_closed = error.errno == errno.EPIPE
            terminal_closed = self._terminal and error.errno == errno.EIO
            if not (reader_closed or terminal_closed):
                raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())  # for processes started from now on, too
        os.close(null)
        return len(data)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Make standard output and error survive closed readers, unless they were replaced."""
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
    """Open closed standard streams, so that no other file gets their descriptors."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lasting(stream: TextIO | None, descriptor: int) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # None if closed at the start
        return open(os.devnull, "w", encoding="utf-8")
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
