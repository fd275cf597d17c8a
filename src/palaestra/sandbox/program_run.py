"""Program runs: read a program's pipes, enforce its limits, and return a `Ran` at its end.

A back end defines which processes belong to it, and how they are killed. Polling costs time: the
next poll waits ten times as long as the last one took, and increasingly longer while the program
uses no CPU time.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from palaestra.sandbox import orphans
from palaestra.sandbox.base import Ended, Limits, Ran
from palaestra.sandbox.process_usage import Usage

LOOK = 0.02  # seconds between two polls of the usage
IDLE = 0.25  # longest such interval, while no CPU time is used
LAST = 2.0  # seconds in which killed processes must be gone
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started on this machine."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None = None
    descriptors: tuple[int, ...] = ()  # passed to it, and closed here afterwards


class Running(ABC):
    """A running program, everything that it started, and its output."""

    def __init__(self, launch: Launch, limits: Limits, input: bytes | None = b"") -> None:
        """Start it; `input` None leaves its standard input open."""
        self.limits = limits
        self.ended: Ended | None = None  # set if a limit ended it
        self.used = Usage(0, 0.0, 0)  # the highest usage seen
        self.found: set[int] = set()  # descendants of the first process; orphans after its end
        self._out = {"stdout": bytearray(), "stderr": bytearray()}
        self._input = bytearray(input or b"")
        self._open_input = input is None
        self.began = time.monotonic()
        orphans.adopt()
        try:
            self.process = spawn(launch)
        except BaseException:
            orphans.release()
            raise
        self._deadline = self.began + limits.seconds
        self._next_look = self.began
        self._pause = LOOK
        self._selector = selectors.DefaultSelector()
        for name, pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)
        self._exit = _exit_descriptor(self.process.pid)
        if self._exit is not None:
            self._selector.register(self._exit, selectors.EVENT_READ, "exit")
        self._feed()

    @abstractmethod
    def look(self) -> Usage:
        """Return the current usage of all its processes."""

    @abstractmethod
    def kill(self) -> None:
        """Kill all its processes, and return when they are gone."""

    def memory(self) -> int:
        """Return its exact memory in bytes; called if `look` reports too much."""
        return self.look().memory

    def full(self) -> bool:
        """Return whether it has written more than it may."""
        return False

    def begin(self, seconds: float) -> None:
        """Set its remaining lifetime."""
        self.began = time.monotonic()
        self._deadline = self.began + seconds

    def feed(self, data: bytes) -> None:
        """Queue data for its standard input."""
        self._input += data
        self._next_look, self._pause = time.monotonic(), LOOK  # it is about to compute
        self._feed()

    def taken(self, name: str) -> bytearray:
        """Return the unread output of `stdout` or `stderr`; the caller may remove from it."""
        return self._out[name]

    def wait(self, seconds: float) -> None:
        """Return when a pipe is ready, or when the next poll is due."""
        now = time.monotonic()
        self._selector.select(min(seconds, max(0.0, min(self._deadline, self._next_look) - now)))

    def turn(self, seconds: float = LOOK) -> bool:
        """Serve the pipes for that time, and check the limits; return false if it has ended.

        An exceeded limit ends the program here.
        """
        now = time.monotonic()
        wait = min(seconds, max(0.0, min(self._deadline, self._next_look) - now))
        for key, _ in self._selector.select(wait):
            if key.data in self._out:
                self._receive(key.data, key.fd)
            elif key.data == "stdin":
                self._feed()
        if self.process.poll() is not None:
            return False
        if self.ended is None:
            self.ended = self._broken()
        if self.ended is not None:
            self.kill()
            return False
        return True

    def finish(self) -> Ran:
        """End it, and return its result."""
        closed_by_us = self.process.poll() is None
        self.kill()
        status = self._reap()
        orphans.reap(self.found)
        orphans.release()
        code: int | None = None
        seconds = time.monotonic() - self.began
        for name, pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
            assert pipe is not None
            self._receive(name, pipe.fileno(), to_the_end=True)
            pipe.close()
        self._close()
        ended = self.ended
        if ended is None:
            ended, code = (Ended.EXIT, None) if closed_by_us else self._explain(status)
        most = self.limits.output_bytes
        return Ran(
            code,
            bytes(self._out["stdout"][:most]).decode(errors="replace"),
            bytes(self._out["stderr"][:most]).decode(errors="replace"),
            ended,
            seconds,
        )

    def _explain(self, code: int) -> tuple[Ended, int | None]:
        """Interpret an exit status; a limit enforced by the kernel shows as a signal."""
        number = -code if code < 0 else code - 128 if 128 < code <= 128 + signal.NSIG - 1 else 0
        if number == signal.SIGXCPU or self.used.cpu_seconds > self.limits.cpu_seconds:
            return Ended.CPU, None
        if number == signal.SIGXFSZ:
            return Ended.DISK, None
        if code != 0 and self.full():
            return Ended.DISK, None if number else code
        return (Ended.SIGNAL, None) if number else (Ended.EXIT, code)

    def _broken(self) -> Ended | None:
        """Return the limit that is exceeded now, if any."""
        now = time.monotonic()
        if any(len(kept) > self.limits.output_bytes for kept in self._out.values()):
            return Ended.OUTPUT
        if now >= self._deadline:
            return Ended.SECONDS
        if now < self._next_look:
            return None
        seen = self.look()
        idle = seen.cpu_seconds <= self.used.cpu_seconds
        self._pause = min(2 * self._pause, IDLE) if idle else LOOK
        self.used = Usage(
            max(self.used.memory, seen.memory),
            max(self.used.cpu_seconds, seen.cpu_seconds),
            max(self.used.processes, seen.processes),
        )
        full = self.full()
        self._next_look = time.monotonic() + max(self._pause, 10 * (time.monotonic() - now))
        if seen.cpu_seconds > self.limits.cpu_seconds:
            return Ended.CPU
        if seen.memory > self.limits.memory and self.memory() > self.limits.memory:
            return Ended.MEMORY
        if seen.processes > self.limits.processes:
            return Ended.PROCESSES
        return Ended.DISK if full else None

    def _receive(self, name: str, descriptor: int, to_the_end: bool = False) -> None:
        kept, most = self._out[name], self.limits.output_bytes
        while len(kept) <= most:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                if descriptor in self._selector.get_map():
                    self._selector.unregister(descriptor)
                return
            kept += data
            if not to_the_end:
                return

    def _feed(self) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        if pipe.closed:
            return
        try:
            while self._input:
                del self._input[: os.write(pipe.fileno(), self._input[:_CHUNK])]
        except BlockingIOError:
            if pipe.fileno() not in self._selector.get_map():
                self._selector.register(pipe, selectors.EVENT_WRITE, "stdin")
            return
        except BrokenPipeError:
            self._input.clear()
            self._open_input = False
        if pipe.fileno() in self._selector.get_map():
            self._selector.unregister(pipe)
        if not self._open_input:
            pipe.close()

    def _reap(self) -> int:
        try:
            return self.process.wait(LAST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _close(self) -> None:
        self._selector.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self._exit is not None:
            os.close(self._exit)


def data_limit(limits: Limits) -> int:
    """Return the bytes that one process may allocate: a hard limit well above the memory limit.

    Programs allocate more than they use, and a program ended by the memory limit is easier to
    diagnose than one whose allocation failed.
    """
    return 2 * limits.memory + 256 * 2**20


def run_to_end(running: Running) -> Ran:
    """Run a program until it ends, by itself or by a limit."""
    try:
        while running.turn(1.0):
            pass
    finally:
        ran = running.finish()
    return ran


def spawn(launch: Launch) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as this process.

    A program that is set to die with its parent dies with the *thread* that started it.
    """
    try:
        return _starter().submit(_spawn, launch).result()
    finally:
        for descriptor in launch.descriptors:
            os.close(descriptor)


def _spawn(launch: Launch) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        launch.arguments,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(launch.environment),
        cwd=launch.folder,
        pass_fds=launch.descriptors,
        start_new_session=True,
    )


_starters: dict[int, ThreadPoolExecutor] = {}  # by process: a fork has no threads


def _starter() -> ThreadPoolExecutor:
    if os.getpid() not in _starters:
        _starters.clear()
        _starters[os.getpid()] = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
    return _starters[os.getpid()]


def _exit_descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process has ended; None without pidfd."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
