"""A foreign program: started for one episode, its last words kept, ended with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import psutil

from palaestra.core.errors import InputError
from palaestra.rollout.gateway import guard_program

KEPT = 4096  # bytes of what it said last
PATIENCE = 2.0  # seconds between asking it to end and ending it
LOCAL = "127.0.0.1,localhost"


def parsed(line: str) -> list[str]:
    """The words of a command line.

    Raises:
        InputError: it has none, a quote is not closed, or there is no such program.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"The command '{line}' cannot be read: {error}.") from None
    if not words:
        raise InputError("The command of the agent is empty; give one, such as python agent.py.")
    if shutil.which(words[0]) is None:
        raise InputError(f"There is no program '{words[0]}' to run the agent with; install it.")
    return words


class Guard:
    """Ends programs if this process is killed before it could; see `guard_program`."""

    def __init__(self) -> None:
        """Nothing is started until there is something to guard."""
        self._process: subprocess.Popen[bytes] | None = None

    def began(self, pid: int) -> None:
        """A program has begun, in a process group of its own."""
        self._tell("+", pid)

    def ended(self, pid: int) -> None:
        """It was ended, with all that it started."""
        self._tell("-", pid)

    def _tell(self, sign: str, pid: int) -> None:
        if self._process is None or self._process.poll() is not None:
            words = [sys.executable, guard_program.__file__]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{sign}{pid}\n".encode())
            self._process.stdin.flush()


GUARD = Guard()


class Program:
    """One process in a group of its own; an asynchronous context manager."""

    def __init__(self, words: list[str], variables: Mapping[str, str]) -> None:
        """Nothing is started yet; `variables` are added to this process's environment."""
        self._words = words
        proxies = os.environ.get("NO_PROXY", "")
        self._environment = {
            **os.environ,
            "NO_PROXY": f"{proxies},{LOCAL}" if proxies else LOCAL,
            **{name: value.replace("\0", "") for name, value in variables.items()},
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._words_said = b""

    async def __aenter__(self) -> Self:
        """Start it; raises InputError where the system refuses."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={name: os.fsencode(value) for name, value in self._environment.items()},
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"'{self._words[0]}' does not start: {error}.") from None
        GUARD.began(self._process.pid)
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def last_words(self) -> str:
        """The end of what it printed."""
        return self._words_said.decode("utf-8", "replace").strip()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None and self._reading is not None
        family = list(self._family())
        if self._process.returncode is None:
            _tell(family, signal.SIGTERM)
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(PATIENCE):
                    await self._process.wait()
        _tell([*family, *self._family()], signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # those whose parents have died
        GUARD.ended(self._process.pid)
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE):
                await self._process.wait()
                await self._reading
        self._reading.cancel()

    def _family(self) -> Iterator[psutil.Process]:
        """The process and those that it started, as far as they are still its own."""
        assert self._process is not None
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            yield from own.children(recursive=True)
            yield own

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while data := await self._process.stdout.read(KEPT):
            self._words_said = (self._words_said + data)[-KEPT:]


def _tell(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
