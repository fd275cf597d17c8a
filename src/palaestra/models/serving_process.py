"""A process of this machine that serves a policy: started, watched, started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from palaestra.core.errors import InfrastructureFault, InputError

START_SECONDS = 120.0  # a server that does not listen by then cannot start
LAST_WORDS = 4096  # bytes of its stderr that are kept for messages
GLANCE = 0.05  # seconds between looks at one that starts


def check_packages() -> None:
    """Raises InputError if a package that serving needs is not installed."""
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"Serving a policy needs the package '{name}'; install it with: "
                "pip install 'palaestra[serving]'"
            )


class ServingProcess:
    """Runs `palaestra.models.server` on a private Unix socket; an asynchronous context manager.

    It ends with this process, however that ends. When it ends by itself, it is started again
    with the checkpoint of `folder`; whoever asks meanwhile is patient (see `Endpoint`).
    """

    def __init__(self, folder: Path, options: Sequence[str], *, threads: int) -> None:
        """Nothing is started yet.

        Args:
            folder: the checkpoint to begin with; set it when another one has been loaded.
            options: of the server, see its `--help`.
            threads: for its matrix products.
        """
        self.folder = folder
        self._options, self._threads = list(options), threads
        self._home = tempfile.TemporaryDirectory(prefix="palaestra-")  # only its owner may enter
        self.socket = Path(self._home.name) / "server"
        self._process: Process | None = None
        self._words: asyncio.Task[str]  # the end of what it writes to stderr
        self._watch: asyncio.Task[None] | None = None
        self.births = 0

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises:
            InfrastructureFault: it cannot start; the message says why.
        """
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        self._watch = asyncio.create_task(self._restart())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
            await self._words
        self._home.cleanup()

    @property
    def pid(self) -> int | None:
        """Of the process that serves now."""
        return None if self._process is None else self._process.pid

    async def _start(self) -> None:
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "palaestra.models.server", str(self.folder)]
        command += ["--socket", str(self.socket), "--until-input-ends", *self._options]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        variables = {"OMP_NUM_THREADS": str(self._threads), "PYTHONPATH": path}
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            env={**os.environ, **variables},
            start_new_session=True,  # a terminal's Ctrl-C is for this process to handle
        )
        self._process = process
        self._words = asyncio.create_task(_last_words(process))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while process.returncode is None and not await self._listens():
                    await asyncio.sleep(GLANCE)
                if process.returncode is None:
                    self.births += 1
                    return
        if process.returncode is None:
            process.kill()
        await process.wait()
        said = (await self._words).strip()
        reason = f"the process that serves the policy could not start; its last words:\n{said}"
        raise InfrastructureFault("actor", reason)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(self.socket))
        except OSError:
            return False
        writer.close()
        return True

    async def _restart(self) -> None:
        while True:
            assert self._process is not None
            await self._process.wait()
            await self._start()


async def _last_words(process: Process) -> str:
    assert process.stderr is not None
    words = b""
    while chunk := await process.stderr.read(LAST_WORDS):
        words = (words + chunk)[-LAST_WORDS:]
    return words.decode(errors="replace")
