"""`--on ray`: the workers of a run, from the words of the command line and the recipe."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from palaestra.cluster.copies import Copies
from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.engines import Engines
from palaestra.cluster.placement import Kind, plan, shortage
from palaestra.cluster.supervisor import LOOK
from palaestra.core.errors import InputError
from palaestra.store.database import Database
from palaestra.store.process_roster import Roster

if TYPE_CHECKING:
    from palaestra.cluster.ray_launcher import RayLauncher
    from palaestra.training.ranks import Team


@dataclass(frozen=True, slots=True)
class OnRay:
    """Where a run's sessions run."""

    address: str | None  # None: RAY_ADDRESS, or else a Ray on this machine
    workers: Kind = field(default_factory=worker_kind)
    engines: Kind | None = None
    learners: Kind | None = None  # beside this process
    copies: Kind | None = None
    wait: float | None = None  # seconds for a cluster that is large enough; None: forever

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of processes that the run needs; earlier ones get room first."""
        found = self.copies, self.learners, self.engines, self.workers
        return tuple(kind for kind in found if kind is not None)

    @classmethod
    def parse(cls, text: str) -> OnRay:
        """Return what `ray` or `ray=ADDRESS` means, with `,wait=SECONDS` or without.

        Raises:
            InputError: it is neither.
        """
        found = re.fullmatch(r"ray(?:=([^,=]+))?(?:,wait=([0-9.]+))?", text)
        if found is None:
            raise InputError(f"--on {text} is unknown; write --on ray, or --on ray=ADDRESS.")
        address, wait = found.groups()
        return cls(address, wait=None if wait is None else float(wait))

    def plan(self) -> list[str]:
        """Return lines that say what would run where; connects to the cluster for a moment.

        Raises:
            MissingPackage: Ray is not installed.
            InputError: there is no such cluster.
        """
        with connected_to(self, self.kinds) as launcher:
            models = "models" if self.engines is None else "models except in RL's rollouts"
            return plan(launcher.machines(), self.kinds, f"learner, {models}, record")


@dataclass(frozen=True, slots=True)
class Started:
    """The processes of a run, at work."""

    workers: Workers
    engines: Engines | None
    team: Team | None


Elsewhere = Callable[
    [int, float, Callable[[str], None], Database], AbstractAsyncContextManager[Started]
]
"""Starts the processes of a run: processes for the environments of each worker, seconds of a call
in one, what shows messages, and where it is noted who is where."""


@contextmanager
def connected(where: OnRay | None) -> Iterator[Elsewhere | None]:
    """Connect to a cluster, and leave it with the context; None stays in this process.

    Raises:
        MissingPackage: Ray is not installed.
        InputError: there is no such cluster.
    """
    if where is None:
        yield None
        return
    with connected_to(where, where.kinds) as launcher:
        if where.wait is not None:
            await_room(launcher, where.kinds, where.wait)

        @asynccontextmanager
        async def start(
            processes: int, timeout: float, say: Callable[[str], None], database: Database
        ) -> AsyncIterator[Started]:
            kind, engines, team, noted = where.workers, None, None, _Noted(database)
            async with AsyncExitStack() as stack:
                if where.copies is not None:
                    await stack.enter_async_context(
                        Copies(
                            launcher,
                            say,
                            where.copies,
                            database,
                            roster=noted.roster,
                            note=noted.store,
                        )
                    )
                if where.learners is not None:
                    from palaestra.cluster.learners import learning_with  # and torch

                    team = await stack.enter_async_context(
                        learning_with(launcher, say, where.learners, noted.roster)
                    )
                if where.engines is not None:
                    say(f"starting {where.engines.most} engines on Ray, {where.engines.each} each")
                    engines = await stack.enter_async_context(
                        Engines(launcher, say, where.engines, roster=noted.roster, note=noted.store)
                    )
                say(f"starting {kind.least} to {kind.most} workers on Ray, {kind.each} each")
                workers = Workers(
                    launcher,
                    say,
                    kind,
                    processes=processes,
                    timeout=timeout,
                    roster=noted.roster,
                    note=noted.store,
                )
                yield Started(await stack.enter_async_context(workers), engines, team)

        yield start


def await_room(launcher: RayLauncher, kinds: Sequence[Kind], seconds: float) -> None:
    """Wait until the cluster is large enough; raise InputError if it is not in time."""
    until = time.monotonic() + seconds
    while True:
        machines = launcher.machines()
        short = [found for kind in kinds if (found := shortage(machines, kinds, kind))]
        if not short:
            return
        if time.monotonic() >= until:
            raise InputError(f"{short[0]}; add machines, ask for less, or wait longer (--wait).")
        time.sleep(min(LOOK, max(0.0, until - time.monotonic())))


class _Noted:
    """The roster of a run, stored whenever it has changed."""

    def __init__(self, database: Database) -> None:
        self.roster = Roster()
        self._database, self._stored = database, ""

    def store(self) -> None:
        if str(self.roster) != self._stored:
            self._stored = str(self.roster)
            self.roster.store(self._database)


def check_importable(names: Iterable[str | None]) -> None:
    """Raise InputError if one of the names is of a class that only this process has."""
    for name in names:
        if name is not None and name.startswith("__main__:"):
            raise InputError(
                f"The class {name.partition(':')[2]} is defined in a script or notebook, which "
                "workers on Ray cannot import; put it into a module, or leave `on` out."
            )


@contextmanager
def connected_to(where: OnRay, kinds: Sequence[Kind]) -> Iterator[RayLauncher]:
    """Connect to a cluster for processes of some kinds, and leave it with the context."""
    from palaestra.cluster.ray_launcher import RayLauncher

    launcher = RayLauncher(where.address, kinds)
    try:
        yield launcher
    finally:
        launcher.disconnect()
