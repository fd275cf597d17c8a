"""Background programs: programs that keep running between calls, each supervised by a thread."""

from __future__ import annotations

import threading
import time

from palaestra.sandbox.base import Ended, Program, Ran
from palaestra.sandbox.program_run import LOOK, Running


class BackgroundProgram(Program):
    """A program of any back end whose programs are processes of this machine."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._changed = threading.Condition()
        self._over = False
        self._ran: Ran | None = None
        self._thread = threading.Thread(target=self._supervise, name="sandbox-program", daemon=True)
        self._thread.start()

    def begin(self, seconds: float) -> None:
        with self._changed:
            self._running.begin(seconds)

    def send(self, line: str) -> None:
        with self._changed:
            if self._over:
                raise BrokenPipeError("the program has ended")
            self._running.feed(line.encode() + b"\n")

    def receive(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                line = self._line()
                if line is not None:
                    return line
                if self._over:
                    raise EOFError("the program has ended")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the program wrote no line in {seconds:g} s")
                self._changed.wait(left)

    def close(self) -> Ran:
        with self._changed:
            self._over = True
        if threading.current_thread() is self._thread:  # the garbage collector called from here
            self._running.kill()  # the running turn finishes it, and still needs the pipes
            return Ran(None, "", "", Ended.EXIT, time.monotonic() - self._running.began)
        self._thread.join()
        assert self._ran is not None
        return self._ran

    def _supervise(self) -> None:
        running, on = self._running, True
        try:
            while on and not self._over:
                running.wait(LOOK)  # outside the lock: the owner may send meanwhile
                with self._changed:
                    before = len(running.taken("stdout"))
                    on = running.turn(0.0)
                    if not on:
                        self._finish()
                    if not on or len(running.taken("stdout")) != before:
                        self._changed.notify_all()
        finally:
            with self._changed:
                self._finish()
                self._changed.notify_all()

    def _finish(self) -> None:
        self._over = True
        if self._ran is None:
            self._ran = self._running.finish()

    def _line(self) -> str | None:
        kept = self._running.taken("stdout")
        end = kept.find(b"\n")
        if end < 0 and not (self._over and kept):
            return None
        end = end if end >= 0 else len(kept)
        line = bytes(kept[:end]).decode(errors="replace")
        del kept[: end + 1]
        return line
