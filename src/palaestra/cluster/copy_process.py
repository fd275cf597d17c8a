"""A process that keeps a copy of the run's record; see `store.run_copy`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from palaestra.cluster.supervised_process import Driver
from palaestra.cluster.worker_messages import Call
from palaestra.core.errors import RunTakenOver
from palaestra.store.damage import Statement
from palaestra.store.run_copy import RunCopy

ROOT = Path("~/.palaestra/copies")  # unless the machine's variable PALAESTRA_COPIES names another


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The record up to a batch; the bytes of the database follow."""

    name: str  # of the run
    number: int
    size: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The statements of one transaction."""

    number: int
    epoch: int
    statements: list[Statement]


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy has all batches up to this one."""

    number: int
    folder: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The copy was resumed, so the driver is out of date."""

    reason: str


def serve(call: Call) -> None:
    """Keep a copy until the driver ends the connection, or ends itself.

    Raises:
        OSError: the driver cannot be reached.
        StorageFull: there is no space.
    """
    with Driver(call) as driver:
        try:
            _keep(driver, Path(os.environ.get("PALAESTRA_COPIES", ROOT)).expanduser())
        except RunTakenOver as error:
            driver.send(Refused(str(error)))


def _keep(driver: Driver, root: Path) -> None:
    first: Snapshot = driver.receive()
    root.mkdir(parents=True, exist_ok=True)
    file = root / f".snapshot-{os.getpid()}"
    try:
        driver.receive_file(file, first.size)
        copy = RunCopy.make(root, first.name, file)
    finally:
        file.unlink(missing_ok=True)
    driver.send(Copied(first.number, str(copy.folder)))
    try:
        while True:
            batch: Batch = driver.receive()
            copy.apply(batch.epoch, batch.statements)
            driver.send(Copied(batch.number, str(copy.folder)))
    finally:
        copy.close()
