"""A local process that serves a policy: started, watched, and restarted when it ends.

A thread of the server echoes its input, independently of the engine. If several beats bring no
echo, the process counts as frozen, and is replaced as if it had died. Beats are counted instead of
seconds, so that time in which this process itself did not run does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from palaestra.core.errors import InfrastructureFault, InputError

START_SECONDS = 120.0  # a server that does not listen by then has failed to start
STDERR_TAIL = 4096  # bytes of its stderr that are kept for messages
GLANCE = 0.05  # seconds between polls of a starting server
BEAT = 1.0  # seconds between two heartbeats
SILENT = 10  # heartbeats without an echo after which the process counts as frozen
STEADY = 30.0  # seconds of serving after which an end is no early death
DEATHS = 6  # early deaths in a row after which it is not started again
PAUSE = 0.5  # seconds between the first early death and the next start; doubled each time
REFUSED = 2  # exit status of a server with invalid options


def check_packages() -> None:
    """Raise InputError if a package that serving needs is not installed."""
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"Serving a policy needs the package '{name}'; install it with: "
                "pip install 'palaestra[serving]'"
            )


@dataclass(frozen=True, slots=True)
class _End:
    """How one process ended."""

    how: str
    served: float = 0.0  # seconds
    stderr: str = ""  # the end of what it wrote to stderr
    refused: bool = False  # its options are invalid: another process would fail as well


class ServingProcess:
    """A supervised `models.local.server` on a private Unix socket; an async context manager.

    It ends with this process, however that ends. When it ends by itself or freezes, it is
    started again with the checkpoint that was last to be loaded; requests wait meanwhile
    (see `Endpoint`). After too many early deaths it is not started again.
    """

    def __init__(
        self, folder: Path, options: Sequence[str], *, threads: int, version: int = 0
    ) -> None:
        """Describe the server; nothing is started yet.

        Args:
            folder: the checkpoint to start with.
            options: of the server, see its `--help`.
            threads: for its matrix products.
            version: of the weights in `folder`, stamped on what they sample.
        """
        self.begin_with(folder, version)
        self._options, self._threads = list(options), threads
        self._home = tempfile.TemporaryDirectory(prefix="palaestra-")  # only its owner may enter
        self.socket = Path(self._home.name) / "server"
        self._process: Process | None = None
        self._settled = asyncio.Event()  # it serves, or never will again
        self._keeping: asyncio.Task[str]  # supervises it; returns why it failed for good
        self._alive = False  # an echo since the last heartbeat
        self._stderr = b""  # the end of what it has written to stderr
        self.starts = 0

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises:
            InfrastructureFault: it cannot start; the message names the reason.
        """
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(lambda _: self._settled.set())
        try:
            await self.serving()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        self._home.cleanup()

    @property
    def pid(self) -> int | None:
        """Process id of the current server; None without one."""
        return None if self._process is None else self._process.pid

    def begin_with(self, folder: Path, version: int) -> None:
        """Set the checkpoint and version with which later processes start."""
        self._folder, self._version = folder, version

    async def serving(self) -> None:
        """Wait until it serves: return at once, or as soon as it has been started again.

        Each start may take `START_SECONDS`; there are at most `DEATHS` starts in a row.

        Raises:
            InfrastructureFault: it failed for good.
        """
        while True:
            await self._settled.wait()
            if self._keeping.done():
                raise InfrastructureFault("actor", self._keeping.result())
            if await self._listens():
                return
            await asyncio.sleep(GLANCE)  # it has just ended; `_keep` will notice

    async def _keep(self) -> str:
        """Start it, and restart it whenever it ends; return the reason of the final failure."""
        deaths = 0
        while True:
            end = await self._run_once()
            deaths = 0 if end.served >= STEADY else deaths + 1
            if end.refused:
                return _with_stderr("the process that serves the policy could not start", end)
            if deaths == DEATHS:
                return _with_stderr(
                    f"the process that serves the policy ended {deaths} times in a row as soon as "
                    f"it was started, the last time {end.how}; if memory runs short, free "
                    "some and continue with --resume, or start a run with fewer model.slots or "
                    "without rl.actor",
                    end,
                )
            await asyncio.sleep(PAUSE * 2 ** (deaths - 1) if deaths else 0.0)

    async def _run_once(self) -> _End:
        """Run one process from its start to its end."""
        try:
            process = await self._start()
        except OSError as error:
            return _End(f"by '{error}'")
        self._process, self._stderr = process, b""
        listening = [
            asyncio.create_task(self._read_beats(process)),
            asyncio.create_task(self._read(process)),
        ]
        served = 0.0
        try:
            if await self._begins(process):
                self.starts += 1
                self._settled.set()
                since = time.monotonic()
                await self._watch(process)
                served = time.monotonic() - since
            how = _how(process.returncode)
        finally:
            self._settled.clear()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.wait(listening, timeout=1.0)
            for task in listening:
                task.cancel()
        stderr = self._stderr.decode(errors="replace").strip()
        return _End(how, served, stderr, process.returncode == REFUSED)

    async def _start(self) -> Process:
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "palaestra.models.local.server", str(self._folder)]
        command += [f"--version={self._version}", "--socket", str(self.socket)]
        command += ["--until-input-ends", *self._options]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        variables = {"OMP_NUM_THREADS": str(self._threads), "PYTHONPATH": path}
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **variables},
            start_new_session=True,  # only this process handles a terminal's Ctrl-C
        )

    async def _begins(self, process: Process) -> bool:
        """Return whether it listens in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while process.returncode is None:
                    if await self._listens():
                        return True
                    await asyncio.sleep(GLANCE)
        return False

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(self.socket))
        except OSError:
            return False
        writer.close()
        return True

    async def _watch(self, process: Process) -> None:
        """Return when it has ended or is frozen."""
        assert process.stdin is not None
        silent = 0
        while silent < SILENT:
            self._alive = False
            process.stdin.write(b".")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await process.wait()
                    return
            silent = 0 if self._alive else silent + 1

    async def _read_beats(self, process: Process) -> None:
        assert process.stdout is not None
        while await process.stdout.read(STDERR_TAIL):
            self._alive = True

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(STDERR_TAIL):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL:]


def _how(status: int | None) -> str:
    if status is None:
        return "without a sign of life"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def _with_stderr(problem: str, end: _End) -> str:
    return f"{problem}; its last words:\n{end.stderr}" if end.stderr else problem
