"""The tests that runs recorded, for scripts that print a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from palaestra.store.database import Database
from palaestra.store.run_folder import RunFolder


def tested_phases(runs: Iterable[Path]) -> Iterator[tuple[str, Database, str]]:
    """Yield the row's name, the run's database and the phase, for tests and transfer tests."""
    for run in runs:
        with RunFolder.read(run) as opened:
            for phase in opened.database.phases():
                if phase.startswith(("test", "transfer")):
                    yield f"{run.name}, {phase}", opened.database, phase
