"""`--on ray`: the workers of a run, from the words of the command line and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palaestra.cluster.driver import Workers
from palaestra.cluster.placement import plan
from palaestra.core.errors import InputError
from palaestra.store.database import Database

if TYPE_CHECKING:
    from palaestra.cluster.ray_launcher import RayLauncher


@dataclass(frozen=True, slots=True)
class OnRay:
    """Where a run's sessions run."""

    address: str | None  # None: RAY_ADDRESS, or else a Ray on this machine
    least: int = 1  # workers before the run begins
    most: int = 8  # workers where there is room
    cpus: float = 1.0  # of each

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
            return plan(launcher.machines(), self.cpus, self.least, self.most)


Elsewhere = Callable[
    [int, float, Callable[[str], None], Database], AbstractAsyncContextManager[Workers]
]
"""Starts the workers of a run: processes for the environments of each, seconds of a call in one,
what shows messages, and where it is noted who is where."""


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

        def start(
            processes: int, timeout: float, say: Callable[[str], None], database: Database
        ) -> Workers:
            say(f"starting {where.least} to {where.most} workers on Ray, {where.cpus:g} CPU each")
            return Workers(
                launcher,
                say,
                least=where.least,
                most=where.most,
                processes=processes,
                timeout=timeout,
                note=lambda roster: roster.store(database),
            )

        yield start


def check_importable(names: Iterable[str | None]) -> None:
    """Raise InputError if one of the names is of a class that only this process has."""
    for name in names:
        if name is not None and name.startswith("__main__:"):
            raise InputError(
                f"The class {name.partition(':')[2]} is defined in a script or notebook, which "
                "workers on Ray cannot import; put it into a module, or leave `on` out."
            )


@contextmanager
def _launcher(where: OnRay) -> Iterator[RayLauncher]:
    from palaestra.cluster.ray_launcher import RayLauncher

    launcher = RayLauncher(where.address, where.cpus)
    try:
        yield launcher
    finally:
        launcher.disconnect()
