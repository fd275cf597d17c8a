"""An external program in a sandbox, which can reach only the gateway.

Its URLs are the same as outside: a port of the sandbox's loopback interface is forwarded to the
gateway, the only host allowed. It has read-only access to the files that its command names, their
Python, the system's folders and the declared mounts. It writes to its own work folder, which is
deleted after the episode. It inherits no environment variables of this machine.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from palaestra.core.errors import InputError
from palaestra.gateway.program_process import KEPT
from palaestra.sandbox import bridge_program, relay
from palaestra.sandbox.base import Ended, Limits, Mount, Program, Ran, Sandbox, Settings
from palaestra.sandbox.factory import open_sandbox

INSIDE = Path(bridge_program.__file__)
MEMORY, PROCESSES = 2 * 2**30, 128  # defaults large enough for agent frameworks
GRACE = 60.0  # seconds beyond its time limit until the sandbox itself kills it
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")  # mounted in every sandbox


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """The options of a program's sandbox."""

    kind: str  # of `palaestra.sandbox.factory.KINDS`, or "auto"
    mounts: tuple[str, ...] = ()  # paths, the same inside as outside
    limits: tuple[str, ...] = ()  # such as "memory=1073741824"; others keep their default

    def settings(self, argv: Sequence[str], seconds: float) -> Settings:
        """Return the sandbox settings for a command, without hosts and variables.

        Raises:
            UnknownName: there is no such limit.
            InputError: a limit is not a number, or a mount does not exist.
        """
        ours = Limits(seconds, seconds, MEMORY, PROCESSES).but(self.limits)
        needed = [path for word in argv for path in _needed(Path(word))]
        python = Path(sys.base_prefix).resolve()  # of the bridge
        seen = dict.fromkeys([python, *needed, *map(_declared, self.mounts)])
        mounts = tuple(Mount(path, str(path)) for path in seen if not _in_system(path))
        return Settings(ours, mounts)


def resolved(argv: Sequence[str]) -> list[str]:
    """Return the words of a command, with files as absolute paths."""
    first = shutil.which(argv[0]) or argv[0]
    found = (first, *argv[1:])
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in found]


class SandboxedProgram:
    """One program in a sandbox, with the interface of `program_process.Program`."""

    def __init__(
        self,
        argv: Sequence[str],
        variables: Mapping[str, str],
        options: SandboxOptions,
        seconds: float,
    ) -> None:
        """Prepare the program, which may run for at most `seconds`."""
        self._argv, self._variables, self._options = resolved(argv), variables, options
        self._settings = options.settings(self._argv, seconds + GRACE)
        self._sandbox: Sandbox | None = None
        self._program: Program | None = None
        self._output = ""
        self._done: asyncio.Future[Ran] | None = None

    async def __aenter__(self) -> Self:
        """Start it; raises InputError or MissingSystemPart if the sandbox is not available."""
        self._done = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            await asyncio.to_thread(self._close)
            raise
        threading.Thread(target=self._read_output, args=(self._done,), daemon=True).start()
        return self

    async def ended(self) -> int:
        """Wait until it exits; return the exit code, 137 if the sandbox killed it."""
        assert self._done is not None
        ran = await asyncio.shield(self._done)
        return 137 if ran.code is None else ran.code

    @property
    def output_tail(self) -> str:
        """Return the end of its output, and why it was killed if it was."""
        return self._output.strip()

    async def __aexit__(self, *error: object) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))

    # ── in threads ───────────────────────────────────────────────────────────

    def _start(self) -> None:
        url = urlsplit(self._variables["PALAESTRA_WORLD_URL"])
        variables = {name: value.replace("\0", "") for name, value in self._variables.items()}
        settings = replace(self._settings, hosts=(url.netloc,), environment=variables)
        self._sandbox = open_sandbox(self._options.kind, settings)
        python = str(Path(sys.executable).resolve())
        source = INSIDE.read_text(encoding="utf-8")
        leads = f"{relay.INSIDE}/{url.netloc}"
        bridge = [python, "-I", "-S", "-c", source, leads, str(url.port)]
        self._program = self._sandbox.start([*bridge, *self._argv])

    def _read_output(self, done: asyncio.Future[Ran]) -> None:
        """Read its output until it exits, then set the result."""
        assert self._program is not None
        while True:
            try:
                line = self._program.receive(3600.0)
            except TimeoutError:
                continue
            except EOFError:
                break
            self._output = f"{self._output}{line}\n"[-KEPT:]
        ran = self._program.close()
        if ran.ended is not Ended.EXIT:
            self._output += f"The sandbox ended it: {ran.ended}."
        loop = done.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, done, ran)

    def _close(self) -> None:
        if self._program is not None:
            self._program.close()
        if self._sandbox is not None:
            self._sandbox.close()


def check_sandbox(options: SandboxOptions, argv: Sequence[str]) -> None:
    """Raise what `open_sandbox` raises for these options, before anything is started."""
    settings = options.settings(resolved(argv), 1.0)
    open_sandbox(options.kind, replace(settings, hosts=("127.0.0.1:9",))).close()


def _settle(done: asyncio.Future[Ran], ran: Ran) -> None:
    if not done.done():
        done.set_result(ran)


def _needed(path: Path) -> Iterator[Path]:
    """Yield what a file of a command needs: itself, the targets of its links, and its Python."""
    while path.is_absolute() and path.is_file():
        root = path.parent.parent
        python = path.parent.name == "bin" and any((root / "lib").glob("python3*"))
        yield root if python or (root / "pyvenv.cfg").is_file() else path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def _declared(mount: str) -> Path:
    path = Path(mount).absolute()
    if not path.exists():
        raise InputError(f"'{mount}' cannot be mounted: it does not exist; name a file or folder.")
    return path


def _in_system(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in SYSTEM)
