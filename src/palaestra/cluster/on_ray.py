"""`--on ray`: the workers of a run, from the words of the command line and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.placement import Kind, plan
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.cluster.ray_launcher import RayLauncher


@dataclass(frozen=True, slots=True)
class OnRay:
    """Where a run's sessions run."""

    address: str | None  # None: RAY_ADDRESS, or else a Ray on this machine
    workers: Kind = field(default_factory=worker_kind)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of processes that the run needs; earlier ones get room first."""
        return (self.workers,)

    @classmethod
    def parse(cls, text: str) -> OnRay:
        """Return what `ray` or `ray=ADDRESS` means.

        Raises:
            InputError: it is neither.
        """
        name, equals, address = text.partition("=")
        if name != "ray" or bool(equals) != bool(address):
            raise InputError(f"--on {text} is unknown; write --on ray, or --on ray=ADDRESS.")
        return cls(address or None)

    def plan(self) -> list[str]:
        """Return lines that say what would run where; connects to the cluster for a moment.

        Raises:
            MissingPackage: Ray is not installed.
            InputError: there is no such cluster.
        """
        with _launcher(self) as launcher:
            return plan(launcher.machines(), self.kinds, "learner, models, record")


Elsewhere = Callable[[int, float, Callable[[str], None]], AbstractAsyncContextManager[Workers]]
"""Starts the workers of a run: processes for the environments of each, seconds of a call in one,
and what shows messages."""


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
    with _launcher(where) as launcher:

        def start(processes: int, timeout: float, say: Callable[[str], None]) -> Workers:
            kind = where.workers
            say(f"starting {kind.least} to {kind.most} workers on Ray, {kind.each} each")
            return Workers(launcher, say, kind, processes=processes, timeout=timeout)

        yield start


@contextmanager
def _launcher(where: OnRay) -> Iterator[RayLauncher]:
    from palaestra.cluster.ray_launcher import RayLauncher

    launcher = RayLauncher(where.address, where.kinds)
    try:
        yield launcher
    finally:
        launcher.disconnect()
