"""An external program: started for one episode, and killed with all its child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Self

import psutil

from palaestra.core.errors import InputError
from palaestra.gateway import guard_program

KEPT = 4096  # bytes of output that are kept
PATIENCE = 2.0  # seconds between SIGTERM and SIGKILL
LOCAL = "127.0.0.1,localhost"


def parsed(line: str) -> list[str]:
    """Split a command line into words.

    Raises:
        InputError: it is empty, a quote is not closed, or there is no such program.
    """
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise InputError(
            f"The command '{line}' cannot be parsed: {error}. Quote it as in a shell."
        ) from None
    if not argv:
        raise InputError("The command of the agent is empty; give one, such as python agent.py.")
    if shutil.which(argv[0]) is None:
        raise InputError(f"The agent's program '{argv[0]}' is not found; install it.")
    return argv


class Guard:
    """A process that kills programs if this one dies first; see `guard_program`."""

    def __init__(self) -> None:
        """Start nothing yet; the guard starts with the first program."""
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = secrets.token_hex(16)

    def variables(self) -> dict[str, str]:
        """Return what a program's environment needs to be guarded; the guard is running then."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, guard_program.__file__, self._mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        return {guard_program.MARK: self._mark}


GUARD = Guard()


class Program:
    """One process in its own process group; an asynchronous context manager."""

    def __init__(self, argv: list[str], variables: Mapping[str, str]) -> None:
        """Prepare the process; `variables` are added to this process's environment."""
        self._argv = argv
        proxies = os.environ.get("NO_PROXY", "")
        self._environment = {
            **os.environ,
            "NO_PROXY": f"{proxies},{LOCAL}" if proxies else LOCAL,
            **{name: value.replace("\0", "") for name, value in variables.items()},
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._output = b""

    async def __aenter__(self) -> Self:
        """Start it; raises InputError if the system refuses."""
        variables = {**self._environment, **GUARD.variables()}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={name: os.fsencode(value) for name, value in variables.items()},
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(
                f"'{self._argv[0]}' does not start: {error}. Check the agent's command."
            ) from None
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def ended(self) -> int:
        """Wait until it exits; return the exit code."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def output_tail(self) -> str:
        """Return the end of its output."""
        return self._output.decode("utf-8", "replace").strip()

    async def __aexit__(self, *error: object) -> None:
        assert self._process is not None and self._reading is not None
        tree = list(self._process_tree())
        if self._process.returncode is None:
            _send_signal(tree, signal.SIGTERM)
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(PATIENCE):
                    await self._process.wait()
        _send_signal([*tree, *self._process_tree()], signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # includes orphans
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE):
                await self._process.wait()
                await self._reading
        self._reading.cancel()

    def _process_tree(self) -> Iterator[psutil.Process]:
        """Yield the process and its descendants."""
        assert self._process is not None
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            yield from own.children(recursive=True)
            yield own

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while data := await self._process.stdout.read(KEPT):
            self._output = (self._output + data)[-KEPT:]


def _send_signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
