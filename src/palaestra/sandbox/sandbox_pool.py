"""The sandbox pool: sandboxes kept ready, with a program already started in each.

Each sandbox is used once and closed by its user, so that no state of one episode remains for the
next; the pool opens another one meanwhile.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.sandbox.base import Program, Sandbox


@dataclass(frozen=True, slots=True)
class Warm:
    """A ready sandbox from a pool, with its program."""

    sandbox: Sandbox
    program: Program | None  # None: the pool starts none

    def close(self) -> None:
        """End the program and the sandbox."""
        self.sandbox.close()


class Pool:
    """A pool of ready sandboxes; its size should be the number of concurrent users."""

    def __init__(
        self,
        make: Callable[[], Sandbox],
        size: int,
        *,
        command: Sequence[str] | None = None,
        ready: str | None = None,
    ) -> None:
        """Start to open sandboxes.

        Args:
            make: opens a sandbox, such as `lambda: open_sandbox("auto", settings)`.
            size: how many are kept ready.
            command: a program that is started in each; its time starts when it is taken.
            ready: the line that it writes when it is ready; None: it is ready at once.

        Raises:
            InputError: a size below one, or a line to wait for without a command.
        """
        if size < 1:
            raise InputError(f"A pool of {size} keeps no sandbox ready; give a size of 1 or more.")
        if ready is not None and command is None:
            raise InputError("`ready` needs a command that writes the line; omit it, or give one.")
        self._make, self._size = make, size
        self._command, self._line = command, ready
        self._ready: deque[Warm] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._keep, name="sandbox-pool", daemon=True)
        self._thread.start()

    def take(self, seconds: float = 60.0) -> Warm:
        """Take a ready sandbox; wait if there is none.

        Raises:
            InfrastructureFault: none could be opened, or none became ready in that time.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._ready:
                if self._fault is not None:
                    fault, self._fault = self._fault, None
                    self._changed.notify_all()
                    raise InfrastructureFault("sandbox", f"none could be made: {fault}") from fault
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    why = "the pool is closed" if self._closed else f"none ready in {seconds:g} s"
                    raise InfrastructureFault("sandbox", why)
                self._changed.wait(left)
            warm = self._ready.popleft()
            self._changed.notify_all()
        if warm.program is not None:
            warm.program.begin(warm.sandbox.settings.limits.seconds)
        return warm

    def wait_until_ready(self) -> None:
        """Return when the pool is full, or when no sandbox can be opened."""
        with self._changed:
            while len(self._ready) < self._size and not (self._fault or self._closed):
                self._changed.wait()

    def close(self) -> None:
        """Close the ready sandboxes; taken ones are closed by their users."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        while self._ready:
            self._ready.popleft().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (len(self._ready) >= self._size or self._fault):
                    self._changed.wait()
                if self._closed:
                    return
            try:
                warm = self._warm()
            except Exception as fault:  # any fault is raised by the next `take`
                with self._changed:
                    self._fault = fault
                    self._changed.notify_all()
                continue
            with self._changed:
                self._ready.append(warm)
                self._changed.notify_all()

    def _warm(self) -> Warm:
        sandbox = self._make()
        if self._command is None:
            return Warm(sandbox, None)
        try:
            limits = replace(sandbox.settings.limits, seconds=math.inf)  # until it is taken
            program = sandbox.start(self._command, limits=limits)
            while self._line is not None and program.receive(60.0) != self._line:
                pass
        except BaseException:
            sandbox.close()
            raise
        return Warm(sandbox, program)
