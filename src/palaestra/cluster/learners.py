"""Learner ranks on other machines: this process is rank 0, and ranks that are lost are replaced.

They are supervised in a thread, because this process's event loop stands still while it waits for
ranks in the middle of an update.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

from palaestra.cluster.learner_process import Join
from palaestra.cluster.placement import Kind
from palaestra.cluster.supervisor import LAST_WORDS, Launcher, Peer, Supervisor
from palaestra.cluster.worker_messages import read
from palaestra.core.errors import InfrastructureFault, RankLost
from palaestra.learning.parallel import Ranks, join
from palaestra.store.process_roster import Roster
from palaestra.training.ranks import Team

JOINING = 10.0  # seconds for ranks to join that are ready
TRIES = 3
LOOK = 0.5  # seconds between looks at whether this process was told to stop

T = TypeVar("T")


class Learners(Supervisor):
    """The learner ranks of a run but rank 0; an asynchronous context manager."""

    def __init__(
        self, launcher: Launcher, say: Callable[[str], None], kind: Kind, roster: Roster
    ) -> None:
        """Describe the ranks; see `Supervisor`."""
        super().__init__(launcher, say, kind, roster=roster)
        self._ready: set[int] = set()
        self._chosen: list[int] = []  # the births of ranks 1, 2, …
        self._tries = 0

    async def replace(self, lost: RankLost) -> Ranks:
        """Return joined ranks without the one that was lost, which ends; see `join`."""
        birth = self._chosen[lost.rank - 1]
        with contextlib.suppress(TimeoutError):  # its own end says more
            async with asyncio.timeout(LAST_WORDS):
                await self.until(lambda: birth not in self.connected)
        await self.lose(birth, lost.detail)
        return await self.join()

    async def join(self) -> Ranks:
        """Return joined ranks, of which this process is rank 0.

        Raises:
            InputError: a machine has other versions.
            InfrastructureFault: they did not join, several times.
            ClusterFailed: they die again and again.
        """
        world, tries = self.kind.least + 1, 0
        while True:
            await self.until(lambda: len(self._ready & self.staying) >= self.kind.least)
            self._chosen = sorted(self._ready & self.staying)[: self.kind.least]
            self._ready.difference_update(self._chosen)
            tries, self._tries = tries + 1, self._tries + 1
            prefix = str(self._tries)
            address = f"{self._launcher.host}:{_free_port(self._launcher.host)}"
            for rank, birth in enumerate(self._chosen, 1):
                self.connected[birth].send(Join(rank, world, address, prefix))
            try:
                return await asyncio.to_thread(
                    join, 0, world, address, prefix=prefix, joining=JOINING
                )
            except InfrastructureFault:  # one of them has died meanwhile
                if tries == TRIES:
                    raise

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        while await read(reader) is not None:
            self._ready.add(peer.greeting.birth)
            await self.notify()

    def lost(self, birth: int) -> None:
        self._ready.discard(birth)


@asynccontextmanager
async def learning_with(
    launcher: Launcher, say: Callable[[str], None], kind: Kind, roster: Roster
) -> AsyncIterator[Team]:
    """Start ranks; give the team of them and this process, and end them with the context.

    Raises:
        PalaestraError: see `Learners.join`.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="learners", daemon=True).start()

    def there(work: Coroutine[None, None, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    learners = Learners(launcher, say, kind, roster)
    await asyncio.wrap_future(there(learners.__aenter__()))
    try:
        ranks = await asyncio.wrap_future(there(learners.join()))
        team = Team(ranks, lambda lost: _waited(there(learners.replace(lost)), lost))
        try:
            yield team
        finally:
            team.ranks.end(0)
    finally:
        await asyncio.wrap_future(there(learners.__aexit__()))
        loop.call_soon_threadsafe(loop.stop)


def _waited(ranks: Future[Ranks], lost: RankLost) -> Ranks:
    """Wait for new ranks, unless the work is cancelled meanwhile."""
    while True:
        try:
            return ranks.result(LOOK)
        except TimeoutError:
            try:
                task = asyncio.current_task()
            except RuntimeError:  # a thread of its own, which is waited for
                task = None
            if task is not None and task.cancelling():
                ranks.cancel()
                raise lost from None


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])
