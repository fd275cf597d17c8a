"""Copies of the record on other machines: each has a batch before anyone is told that it is stored.

A copy that is lost is replaced by one that begins with a snapshot; what sessions wait for is stored
once enough copies have it. `store.run_copy` says what a copy is, and what it is good for.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from palaestra.cluster.copy_process import Batch, Copied, Refused, Snapshot
from palaestra.cluster.placement import Kind
from palaestra.cluster.supervisor import Launcher, Peer, Supervisor
from palaestra.cluster.worker_messages import read
from palaestra.core.errors import PalaestraError, RunTakenOver
from palaestra.store.damage import Statement
from palaestra.store.database import Database
from palaestra.store.process_roster import Roster

MODULE = "palaestra.cluster.copy_process"
ENDING = 10.0  # seconds for copies to have the last batches of a run that ends


def copy_kind(count: int) -> Kind:
    """Return the kind of `count` further copies of the record; see `placement.Kind`."""
    note = "each has the space of the record on its disk"
    return Kind(
        "copy", "cluster.copies", MODULE, "batches", count, count, 0.0, note=note, apart=True
    )


@dataclass(slots=True)
class _Copy:
    """What a copy has, and what it still gets."""

    has: int = -1  # the number of the latest batch; -1: not even the snapshot
    queue: asyncio.Queue[Batch] = field(default_factory=asyncio.Queue)


class Copies(Supervisor):
    """The copies of a run's record; an asynchronous context manager."""

    def __init__(
        self,
        launcher: Launcher,
        say: Callable[[str], None],
        kind: Kind,
        database: Database,
        *,
        roster: Roster | None = None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the copies of what is in `database`; see `Supervisor`."""
        super().__init__(launcher, say, kind, roster=roster, note=note)
        self._database = database
        self._copies: dict[int, _Copy] = {}
        self._count = 0  # of batches
        self._waiting: dict[int, asyncio.Future[None]] = {}  # for enough copies, by batch

    async def ready(self) -> None:
        """Hand transactions over from now on, and wait until enough copies have all before."""
        self._database.copy_to(self._take)
        await self.until(lambda: self._stored() >= 0)

    async def __aexit__(self, *error: object) -> None:
        if self.failure is None:
            with contextlib.suppress(PalaestraError, TimeoutError):
                async with asyncio.timeout(ENDING):
                    await self.until(lambda: self._stored() >= self._count)
        self._database.copy_to(None)
        await super().__aexit__(*error)
        self.failed(self.failure or PalaestraError("The run ends."))

    def _take(self, epoch: int, statements: list[Statement]) -> asyncio.Future[None]:
        """Send a transaction to all copies; return a future of enough of them having it."""
        if isinstance(self.failure, RunTakenOver):
            raise self.failure
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting[self._count] = future
        for copy in self._copies.values():
            copy.queue.put_nowait(Batch(self._count, epoch, statements))
        if self.failure is not None:
            self.failed(self.failure)
        return future

    def _stored(self) -> int:
        """Return the number of the latest batch that enough copies have."""
        has = sorted((copy.has for copy in self._copies.values()), reverse=True)
        return has[self.kind.least - 1] if len(has) >= self.kind.least else -1

    # ── what copies send, and get ────────────────────────────────────────────

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        birth = peer.greeting.birth
        write = self._database.snapshot()  # with all batches that were taken
        copy = self._copies[birth] = _Copy()
        self.spawn(self._feed(peer, copy, write, self._count))
        while (message := await read(reader)) is not None:
            if birth not in self._copies:
                continue
            match message:
                case Copied(number, folder):
                    if copy.has < 0:
                        self._say(f"a copy of the record is on {peer.greeting.node}: {folder}")
                    copy.has = number
                    self.roster.count(self.kind.name, birth)
                    stored = self._stored()
                    for one in [n for n in self._waiting if n <= stored]:
                        self._waiting.pop(one).set_result(None)
                    await self.notify()
                case Refused(reason):
                    await self.fail(RunTakenOver(reason))

    async def _feed(
        self, peer: Peer, copy: _Copy, write: Callable[[Path], None], number: int
    ) -> None:
        """Send the record up to a batch, and then all later batches."""
        with contextlib.suppress(OSError):
            with tempfile.TemporaryDirectory(prefix="palaestra-") as name:
                file = Path(name) / "snapshot"
                await asyncio.to_thread(write, file)
                peer.send(Snapshot(self._database.path.parent.name, number, file.stat().st_size))
                await peer.send_file(file)
            while True:
                peer.send(await copy.queue.get())
                await peer.writer.drain()

    def load(self, birth: int) -> int:
        copy = self._copies.get(birth)
        return 0 if copy is None else self._count - max(copy.has, 0)

    def lost(self, birth: int) -> None:
        self._copies.pop(birth, None)

    def failed(self, failure: PalaestraError) -> None:
        for future in self._waiting.values():
            future.set_exception(failure)
        self._waiting.clear()
