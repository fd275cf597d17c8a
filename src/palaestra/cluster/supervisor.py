"""Supervision of the processes of one kind: births, connections, heartbeats, deaths, replacements.

A process is started on some machine by the launcher and connects back to this one. The end of its
connection is noticed at once, a frozen process by its missing heartbeats. Whatever is lost is
replaced, until `Fleet` says that there were too many deaths. A process whose machine is announced
to leave gets no further work, and ends when it has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from palaestra.cluster.fleet import Fleet
from palaestra.cluster.placement import MACHINE_GONE, Kind
from palaestra.cluster.supervised_process import PIECE
from palaestra.cluster.worker_messages import (
    BEAT,
    SECRET,
    Call,
    Greeting,
    dump,
    greeted,
    versions,
)
from palaestra.core.errors import ClusterFailed, PalaestraError
from palaestra.store.process_roster import Roster

LOOK = 2.0  # seconds between looks at the room that the machines have
SCARCE = 60.0  # seconds without enough processes after which that is said
LAST_WORDS = 2.0  # seconds for a process that is gone to say why
GREETING = 10.0  # seconds for a connection to say who it is

LEFT = "it was asked to leave"  # the cause of an end that was wanted
CUT = "its connection ended"  # the cause of a loss before the process is known to have ended


class Launcher(Protocol):
    """What starts processes on machines."""

    host: str
    """The address of this machine, as the others reach it."""

    def room(self, kind: Kind) -> int:
        """Return how many processes of a kind the machines have room for in all; may block."""

    def leaving(self, kind: Kind) -> set[int]:
        """Return the processes whose machines are announced to leave; may block."""

    def start(self, kind: Kind, call: Call) -> Awaitable[str]:
        """Start a process; return what ends with it, with the reason as text."""

    def kill(self, kind: Kind, birth: int) -> None:
        """Kill a process; may block."""

    def lack(self, kind: Kind) -> str:
        """Return what is missing for the least number of processes, as a sentence; may block."""

    def close(self, kind: Kind) -> None:
        """Kill all processes of a kind that are left; may block."""


@dataclass(eq=False)
class Peer:
    """A process that is connected."""

    greeting: Greeting
    writer: asyncio.StreamWriter

    def send(self, message: object) -> None:
        self.writer.write(dump(message))

    async def send_bytes(self, data: memoryview) -> None:
        """Send bytes without a length, at the speed of the network."""
        for begin in range(0, len(data), PIECE):
            self.writer.write(data[begin : begin + PIECE])
            await self.writer.drain()

    async def send_file(self, path: Path) -> None:
        """Send the bytes of a file."""
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                await self.send_bytes(memoryview(piece))


class Supervisor(ABC):
    """The processes of one kind; an asynchronous context manager."""

    def __init__(
        self,
        launcher: Launcher,
        say: Callable[[str], None],
        kind: Kind,
        *,
        roster: Roster | None = None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the processes; `async with` starts them.

        Args:
            launcher: starts them.
            say: shows a message.
            kind: what they are, and how many of them there should be.
            roster: of all kinds, in which it stands who is where.
            note: stores the roster, if it has changed.
        """
        self.kind = kind
        self.roster = roster or Roster()
        self._note = note
        self.failure: PalaestraError | None = None
        self.connected: dict[int, Peer] = {}
        self.changed = asyncio.Condition()  # what is connected, or the failure
        self._launcher, self._say = launcher, say
        self._fleet = Fleet(kind.most)
        self.secret = secrets.token_bytes(SECRET)
        self._ends: dict[int, asyncio.Future[str]] = {}  # of the processes, by birth
        self._tasks: set[asyncio.Future[None]] = set()
        self._server: asyncio.Server

    @abstractmethod
    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        """Read what a process sends, until its connection ends."""

    @abstractmethod
    def lost(self, birth: int) -> None:
        """Give the work of a lost process to others."""

    def failed(self, failure: PalaestraError) -> None:
        """End all work, as there will be no other process; what waits in `until` ends itself."""

    def retire(self, birth: int) -> None:
        """Give a process that is to leave no further work; `staying` leaves it out."""

    def load(self, birth: int) -> int:
        """Return how many sessions or calls a process works on."""
        return 0

    @property
    def staying(self) -> set[int]:
        """Those that are connected, and not asked to leave."""
        return self.connected.keys() - self._fleet.leaving

    def worked(self, birth: int) -> None:
        """Note that a process has less work; one that is to leave and has none may go."""
        if birth in self._fleet.leaving and not self.load(birth):
            self.spawn(self.lose(birth, LEFT))

    async def __aenter__(self) -> Self:
        """Start the processes.

        Raises:
            ClusterFailed: they die again and again.
        """
        self._server = await asyncio.start_server(self._accept, self._launcher.host, 0)
        self.spawn(self._start_forever())
        self.spawn(self._beat_forever())
        try:
            await self.ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def ready(self) -> None:
        """Wait until enough processes are at work.

        Raises:
            ClusterFailed: they die again and again.
        """
        await self.until(lambda: len(self.connected) >= self.kind.least)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds of the processes; raises ClusterFailed if they failed."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.failure or holds())
        if self.failure is not None:
            raise self.failure

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()
        await asyncio.to_thread(self._launcher.close, self.kind)
        for birth in self.connected:
            self.roster.leave(
                self.kind.name, birth, "the run needs it no more", moved=0, died=False
            )
        self._note_roster()
        for peer in self.connected.values():
            peer.writer.close()  # at which it would end by itself as well
        for end in self._ends.values():
            end.cancel()

    def spawn(self, work: Awaitable[None]) -> None:
        """Run some work in the background, until these processes are no longer needed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def notify(self) -> None:
        """Wake what waits for a change."""
        async with self.changed:
            self.changed.notify_all()

    # ── connections ──────────────────────────────────────────────────────────

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.spawn(self._connected(reader, writer))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(GREETING):
                greeting = await greeted(reader, self.secret)
            if greeting is None:
                return
            cause = CUT
            if greeting.beats:
                while await reader.read(64):
                    self._fleet.hear(greeting.birth)
            elif different := _different(greeting):
                cause = different
            elif self._fleet.rise(greeting.birth):
                peer = self.connected[greeting.birth] = Peer(greeting, writer)
                name = self.kind.name
                self.roster.join(name, greeting.birth, greeting.node, greeting.pid)
                await self.notify()
                await self.serve(peer, reader)
            await self.lose(greeting.birth, cause)
        except (TimeoutError, OSError):
            return
        finally:
            writer.close()

    async def lose(self, birth: int, cause: str) -> None:
        """Note that a process is lost; its work goes on elsewhere."""
        unborn = cause == MACHINE_GONE and birth not in self._fleet.up
        blameless = unborn or birth in self._fleet.leaving
        if not self._fleet.lose(birth, time.monotonic(), blameless=blameless):
            return
        peer, load = self.connected.pop(birth, None), self.load(birth)
        self.lost(birth)
        await self.notify()
        if peer is not None:
            peer.writer.transport.abort()  # a frozen process reads nothing any more
        self.spawn(self._bury(birth, peer, cause, load, blameless))

    async def _bury(
        self, birth: int, peer: Peer | None, cause: str, load: int, blameless: bool
    ) -> None:
        """Say why a process was lost, make sure that it is gone, and see whether to go on."""
        end = self._ends.pop(birth, None)
        if end is not None and cause == CUT:
            with contextlib.suppress(TimeoutError):
                cause = await asyncio.wait_for(asyncio.shield(end), LAST_WORDS)
        where = f" on {peer.greeting.node}" if peer is not None else ""
        name = f"{self.kind.name} {birth}{where}"
        self.roster.leave(self.kind.name, birth, cause, moved=load, died=not blameless)
        if self._fleet.failed(time.monotonic()):
            await self.fail(
                ClusterFailed(
                    f"Five {self.kind.plural} died within five minutes, so the run stops. The last "
                    f"one, {name}: {cause}"
                )
            )
        if cause == LEFT:
            self._say(f"{name} has left, as its machine is about to")
        else:
            self._say(f"{name} is lost ({cause}); its {load} {self.kind.work} go on elsewhere")
        await asyncio.to_thread(self._launcher.kill, self.kind, birth)

    async def fail(self, failure: PalaestraError) -> None:
        """End all work: it cannot go on."""
        self.failure = failure
        self.failed(failure)
        await self.notify()

    # ── the fleet ────────────────────────────────────────────────────────────

    async def _start_forever(self) -> None:
        try:
            await self._start_and_dismiss()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            await self.fail(ClusterFailed(f"The cluster cannot be asked any more ({reason})."))

    async def _start_and_dismiss(self) -> None:
        scarce: float | None = time.monotonic()
        while self.failure is None:
            room = await asyncio.to_thread(self._launcher.room, self.kind)
            for birth in await asyncio.to_thread(self._launcher.leaving, self.kind):
                if self._fleet.dismiss(birth):
                    name = f"{self.kind.name} {birth}"
                    self._say(f"the machine of {name} is about to leave; its work moves")
                    self.retire(birth)
                    self.worked(birth)
            now = time.monotonic()
            for birth in self._fleet.due(now, room):
                host, port = self._server.sockets[0].getsockname()[:2]
                call = Call(host, port, self.secret, birth)
                end = asyncio.ensure_future(self._launcher.start(self.kind, call))
                self._ends[birth] = end
                self.spawn(self._watch(birth, end))
            if len(self._fleet.up) >= self.kind.least:
                scarce = now
            elif scarce is not None and now - scarce >= SCARCE:
                scarce = None  # once
                self._say(await asyncio.to_thread(self._launcher.lack, self.kind))
            with contextlib.suppress(TimeoutError):
                async with self.changed, asyncio.timeout(LOOK):
                    await self.changed.wait()
            await asyncio.sleep(max(0.0, self._fleet.resumes - time.monotonic()))

    async def _watch(self, birth: int, end: asyncio.Future[str]) -> None:
        """Note the end of a process that may never have connected."""
        cause = await asyncio.shield(end)
        await self.lose(birth, cause)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            for birth in self._fleet.beat():
                await self.lose(birth, "without a sign of life")
            self._note_roster()

    def _note_roster(self) -> None:
        for entry in self.roster.present:
            if entry.kind == self.kind.name:
                entry.load = self.load(entry.number)
        with contextlib.suppress(PalaestraError):  # what the record itself will meet and raise
            self._note()


def _different(greeting: Greeting) -> str:
    """Return which versions of a process differ from this one; empty if none does."""
    own = versions()
    found = [
        f"{name} {greeting.versions.get(name, 'none')} instead of {version}"
        for name, version in own.items()
        if greeting.versions.get(name) != version
    ]
    if not found:
        return ""
    return f"{greeting.node} has {', '.join(found)}; install the same versions there"
