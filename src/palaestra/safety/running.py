"""One program at work: its pipes are read, its limits are looked after, its end is a `Ran`.

What a back end adds is which processes belong to it, and how all of them are ended. Looking costs
time as well: the next look waits ten times as long as the last one took, and longer and longer
while nothing computes.
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

from palaestra.safety import orphans
from palaestra.safety.sandbox import Ended, Limits, Ran
from palaestra.safety.usage import Use

LOOK = 0.02  # seconds between two looks at what is used
IDLE = 0.25  # the same, at the most, where no processor time was used in between
LAST = 2.0  # seconds in which processes that were killed must be gone
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started on this machine."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None = None
    descriptors: tuple[int, ...] = ()  # given to it, and closed here as soon as it has them


class Running(ABC):
    """A program, everything that it started, and what became of it."""

    def __init__(self, launch: Launch, limits: Limits, input: bytes | None = b"") -> None:
        """Start it; `input` None leaves its standard input open."""
        self.limits = limits
        self.ended: Ended | None = None  # set where a limit ended it
        self.used = Use(0, 0.0, 0)  # the most that was seen
        self.found: set[int] = set()  # processes below the first one; orphans when that has ended
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
    def look(self) -> Use:
        """What all its processes use now."""

    @abstractmethod
    def kill(self) -> None:
        """End all its processes, and come back when they are gone."""

    def memory(self) -> int:
        """Bytes, exactly: asked where `look` says that there are too many."""
        return self.look().memory

    def full(self) -> bool:
        """Whether it has written more than it may."""
        return False

    def begin(self, seconds: float) -> None:
        """Let it live that long from now on."""
        self.began = time.monotonic()
        self._deadline = self.began + seconds

    def feed(self, data: bytes) -> None:
        """Have this written to its standard input as it reads it."""
        self._input += data
        self._next_look, self._pause = time.monotonic(), LOOK  # it is about to work
        self._feed()

    def taken(self, name: str) -> bytearray:
        """What it has written to `stdout` or `stderr` and nobody has taken away."""
        return self._out[name]

    def wait(self, seconds: float) -> None:
        """Come back when something can be moved, or when it is time to look again."""
        now = time.monotonic()
        self._selector.select(min(seconds, max(0.0, min(self._deadline, self._next_look) - now)))

    def turn(self, seconds: float = LOOK) -> bool:
        """Move what can be moved within that time, and look after the limits; false: it has ended.

        A limit that is broken ends the program here.
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
        """End it, and say how it ended."""
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
        """What an exit status says; a limit of the kernel's own shows as a signal."""
        number = -code if code < 0 else code - 128 if 128 < code <= 128 + signal.NSIG - 1 else 0
        if number == signal.SIGXCPU or self.used.cpu_seconds > self.limits.cpu_seconds:
            return Ended.CPU, None
        if number == signal.SIGXFSZ:
            return Ended.DISK, None
        if code != 0 and self.full():
            return Ended.DISK, None if number else code
        return (Ended.SIGNAL, None) if number else (Ended.EXIT, code)

    def _broken(self) -> Ended | None:
        """The limit that is broken now, if any."""
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
        self.used = Use(
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
    """Bytes that one process may ask for: a hard stop some way above what ends a program.

    Programs ask for more than they use, and one that is ended tells more than one that was refused.
    """
    return 2 * limits.memory + 256 * 2**20


def run_to_end(running: Running) -> Ran:
    """Stay with a program until it ends, by itself or by a limit."""
    try:
        while running.turn(1.0):
            pass
    finally:
        ran = running.finish()
    return ran


def spawn(launch: Launch) -> subprocess.Popen[bytes]:
    """Start a process from the one thread that lives as long as this process does.

    A program that asks to die with its parent dies with the *thread* that started it.
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
    """Becomes readable when the process has ended; None where there is no such thing."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
