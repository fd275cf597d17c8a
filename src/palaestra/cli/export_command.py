"""`palaestra export`: recorded episodes as a Parquet file, for analysis elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError, UnknownName

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.experiment.trace import Recorded

EXAMPLE = "palaestra export runs/quick-20260101-120000 --phase rl/3 --to trace.parquet"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or name, or its run.sqlite")
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="e.g. rl/3, or rl for all that begin with rl/; may be repeated (default: all phases)",
    )  # fmt: skip
    parser.add_argument("--to", required=True, metavar="FILE", help="the .parquet file to write")


def run(options: argparse.Namespace) -> int:
    file = Path(options.to)
    if file.suffix != ".parquet":
        raise InputError(f"--to {file}: the file's name must end in .parquet.")
    from palaestra.experiment.trace import documents, open_recorded
    from palaestra.store.disk import readable_size
    from palaestra.store.parquet import write_parquet

    recorded, _ = open_recorded(options.run)
    try:
        phases = choose(recorded.phases(), options.phases)
        count = write_parquet(file, _episodes(recorded, phases), documents(recorded))
    finally:
        recorded.close()
    named = ", ".join(phases) if len(phases) <= 3 else f"{len(phases)} phases"
    print(f"{count} episodes of {named} in {file} ({readable_size(file.stat().st_size)})")
    return 0


def choose(known: list[str], wanted: list[str]) -> list[str]:
    """The phases that are wanted, in the order of the record; all of them without a wish.

    Raises:
        UnknownName: nothing is called so, and nothing begins so.
        InputError: there is no phase at all.
    """
    if not known:
        raise InputError("The run has no finished episodes yet, so there is nothing to export.")
    found = set(known if not wanted else ())
    for name in wanted:
        matching = [p for p in known if p == name or p.startswith(f"{name}/")]
        if not matching:
            raise UnknownName("phase", name, known)
        found.update(matching)
    return [phase for phase in known if phase in found]


def _episodes(recorded: Recorded, phases: list[str]) -> Iterator[Episode]:
    for phase in phases:
        yield from recorded.episodes(phase)
