"""A foreign program in a sandbox: it reaches the gateway, and no other place.

Inside, its URLs are what they are outside: a port of the sandbox's own loopback leads to the
gateway through the one host that is granted. It sees the files that its command names, the Python
that runs them, the system's folders and what is declared besides, all of it to read only; it writes
in a work folder of its own, which ends with the episode. Of this machine's environment variables
it gets none.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from palaestra.core.errors import InputError
from palaestra.rollout.gateway.program import KEPT
from palaestra.safety import bridge_program, relay
from palaestra.safety.opening import open_sandbox
from palaestra.safety.sandbox import Ended, Limits, Mount, Program, Ran, Sandbox, Settings

INSIDE = Path(bridge_program.__file__)
MEMORY, PROCESSES = 2 * 2**30, 128  # for frameworks, which are large
GRACE = 60.0  # seconds over its own time, after which the sandbox ends it whatever we do
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")  # seen in every sandbox


@dataclass(frozen=True, slots=True)
class Walls:
    """The sandbox that a program runs in."""

    kind: str  # of `palaestra.safety.opening.KINDS`, or "auto"
    mounts: tuple[str, ...] = ()  # seen inside where they are outside
    limits: tuple[str, ...] = ()  # such as "memory=1073741824"; the others are ours

    def settings(self, words: Sequence[str], seconds: float) -> Settings:
        """Those of a sandbox for that command, without host or variables.

        Raises:
            UnknownName: there is no such limit.
            InputError: a limit is no number, or a mount is not there.
        """
        ours = Limits(seconds, seconds, MEMORY, PROCESSES).but(self.limits)
        needed = [path for word in words for path in _needed(Path(word))]
        python = Path(sys.base_prefix).resolve()  # of the bridge
        seen = dict.fromkeys([python, *needed, *map(_declared, self.mounts)])
        mounts = tuple(Mount(path, str(path)) for path in seen if not _in_system(path))
        return Settings(ours, mounts)


def named(words: Sequence[str]) -> list[str]:
    """The words of a command, with the files among them as absolute paths."""
    first = shutil.which(words[0]) or words[0]
    found = (first, *words[1:])
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in found]


class WalledProgram:
    """One program; used as `gateway.program.Program` is."""

    def __init__(
        self, words: Sequence[str], variables: Mapping[str, str], walls: Walls, seconds: float
    ) -> None:
        """Nothing is started yet; it lives for so many seconds at most."""
        self._words, self._variables, self._walls = named(words), variables, walls
        self._settings = walls.settings(self._words, seconds + GRACE)
        self._sandbox: Sandbox | None = None
        self._program: Program | None = None
        self._said = ""
        self._done: asyncio.Future[Ran] | None = None

    async def __aenter__(self) -> Self:
        """Start it; raises InputError or MissingSystemPart where there is no such sandbox."""
        self._done = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            await asyncio.to_thread(self._close)
            raise
        threading.Thread(target=self._attend, args=(self._done,), daemon=True).start()
        return self

    async def ended(self) -> int:
        """Wait for its end; returns the exit code, 137 where the sandbox ended it."""
        assert self._done is not None
        ran = await asyncio.shield(self._done)
        return 137 if ran.code is None else ran.code

    @property
    def last_words(self) -> str:
        """The end of what it printed, and why it was ended if it was."""
        return self._said.strip()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))

    # ── in threads ───────────────────────────────────────────────────────────

    def _start(self) -> None:
        url = urlsplit(self._variables["PALAESTRA_WORLD_URL"])
        variables = {name: value.replace("\0", "") for name, value in self._variables.items()}
        settings = replace(self._settings, hosts=(url.netloc,), environment=variables)
        self._sandbox = open_sandbox(self._walls.kind, settings)
        python = str(Path(sys.executable).resolve())
        source = INSIDE.read_text(encoding="utf-8")
        leads = f"{relay.INSIDE}/{url.netloc}"
        bridge = [python, "-I", "-S", "-c", source, leads, str(url.port)]
        self._program = self._sandbox.start([*bridge, *self._words])

    def _attend(self, done: asyncio.Future[Ran]) -> None:
        """Read what it says until it has ended, and tell."""
        assert self._program is not None
        while True:
            try:
                line = self._program.receive(3600.0)
            except TimeoutError:
                continue
            except EOFError:
                break
            self._said = f"{self._said}{line}\n"[-KEPT:]
        ran = self._program.close()
        if ran.ended is not Ended.EXIT:
            self._said += f"The sandbox ended it: {ran.ended}."
        loop = done.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, done, ran)

    def _close(self) -> None:
        if self._program is not None:
            self._program.close()
        if self._sandbox is not None:
            self._sandbox.close()


def check(walls: Walls, words: Sequence[str]) -> None:
    """Raises what `open_sandbox` would for these walls, before anything is started."""
    settings = walls.settings(named(words), 1.0)
    open_sandbox(walls.kind, replace(settings, hosts=("127.0.0.1:9",))).close()


def _settle(done: asyncio.Future[Ran], ran: Ran) -> None:
    if not done.done():
        done.set_result(ran)


def _needed(path: Path) -> Iterator[Path]:
    """What must be seen for a file of a command: itself, what it links to, and its Python."""
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
        raise InputError(f"'{mount}' cannot be mounted: there is no such file or folder.")
    return path


def _in_system(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in SYSTEM)
