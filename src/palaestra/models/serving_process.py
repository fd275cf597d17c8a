"""A process of this machine that serves a policy: started, watched, started again when it ends.

A thread of the server echoes what it is sent, whatever its engine does. Where nothing comes back
for some beats, the process is frozen, and is replaced as if it had died. Beats are counted, not
seconds: time in which this process itself did not run is held against nobody.
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

START_SECONDS = 120.0  # a server that does not listen by then cannot start
LAST_WORDS = 4096  # bytes of its stderr that are kept for messages
GLANCE = 0.05  # seconds between looks at one that starts
BEAT = 1.0  # seconds between two signs of life that are asked for
SILENT = 10  # beats without one, after which the process is frozen
STEADY = 30.0  # seconds: a server that served that long did not die at once
DEATHS = 6  # at once and in a row: then it is given up
PAUSE = 0.5  # seconds after the first of them before the next start; doubled each time
REFUSED = 2  # exit status of a server that was given what cannot work


def check_packages() -> None:
    """Raises InputError if a package that serving needs is not installed."""
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"Serving a policy needs the package '{name}'; install it with: "
                "pip install 'palaestra[serving]'"
            )


@dataclass(frozen=True, slots=True)
class _End:
    """What became of one process."""

    how: str
    served: float = 0.0  # seconds
    words: str = ""  # the end of what it wrote to stderr
    refused: bool = False  # another one would be refused as well


class ServingProcess:
    """Runs `palaestra.models.server` on a private Unix socket; an asynchronous context manager.

    It ends with this process, however that ends. When it ends by itself or is frozen, it is
    started again with the checkpoint that was last to be loaded; whoever asks meanwhile waits
    (see `Endpoint`). One that dies at once, again and again, is given up.
    """

    def __init__(
        self, folder: Path, options: Sequence[str], *, threads: int, version: int = 0
    ) -> None:
        """Nothing is started yet.

        Args:
            folder: the checkpoint to begin with.
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
        self._keeping: asyncio.Task[str]  # why it was given up
        self._heard = False  # a sign of life since the last beat
        self._words = b""  # the end of what it has written to stderr
        self.births = 0

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises:
            InfrastructureFault: it cannot start; the message says why.
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
        """Of the process that serves now."""
        return None if self._process is None else self._process.pid

    def begin_with(self, folder: Path, version: int) -> None:
        """Have processes that are started from now on begin with that checkpoint and version."""
        self._folder, self._version = folder, version

    async def serving(self) -> None:
        """Come back when it serves: at once, or as soon as it has been started again.

        Each start has `START_SECONDS`, and there are `DEATHS` of them at the most.

        Raises:
            InfrastructureFault: it was given up.
        """
        while True:
            await self._settled.wait()
            if self._keeping.done():
                raise InfrastructureFault("actor", self._keeping.result())
            if await self._listens():
                return
            await asyncio.sleep(GLANCE)  # it has just ended, which is noticed in a moment

    async def _keep(self) -> str:
        """Start it, and again whenever it has ended; says why it is given up."""
        deaths = 0
        while True:
            end = await self._live()
            deaths = 0 if end.served >= STEADY else deaths + 1
            if end.refused:
                return _told("the process that serves the policy could not start", end)
            if deaths == DEATHS:
                return _told(
                    f"the process that serves the policy ended {deaths} times in a row as soon as "
                    f"it was started, the last time {end.how}; if memory runs short, free "
                    "some and go on with --resume, or start a run with fewer model.slots or "
                    "without rl.actor",
                    end,
                )
            await asyncio.sleep(PAUSE * 2 ** (deaths - 1) if deaths else 0.0)

    async def _live(self) -> _End:
        """One process, from its start to its end."""
        try:
            process = await self._start()
        except OSError as error:
            return _End(f"by '{error}'")
        self._process, self._words = process, b""
        listening = [
            asyncio.create_task(self._hear(process)),
            asyncio.create_task(self._read(process)),
        ]
        served = 0.0
        try:
            if await self._begins(process):
                self.births += 1
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
        said = self._words.decode(errors="replace").strip()
        return _End(how, served, said, process.returncode == REFUSED)

    async def _start(self) -> Process:
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "palaestra.models.server", str(self._folder)]
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
            start_new_session=True,  # a terminal's Ctrl-C is for this process to handle
        )

    async def _begins(self, process: Process) -> bool:
        """Whether it listens in time."""
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
        """Come back when it has ended or is frozen."""
        assert process.stdin is not None
        silent = 0
        while silent < SILENT:
            self._heard = False
            process.stdin.write(b".")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await process.wait()
                    return
            silent = 0 if self._heard else silent + 1

    async def _hear(self, process: Process) -> None:
        assert process.stdout is not None
        while await process.stdout.read(LAST_WORDS):
            self._heard = True

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(LAST_WORDS):
            self._words = (self._words + chunk)[-LAST_WORDS:]


def _how(status: int | None) -> str:
    if status is None:
        return "without a sign of life"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def _told(problem: str, end: _End) -> str:
    return f"{problem}; its last words:\n{end.words}" if end.words else problem
