"""`palaestra index`: build the text search index of runs ahead of the first search."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import PalaestraError
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.runtime.progress import Reporter

EXAMPLE = "palaestra index runs/default-20260101-120000"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="run folders or names (all of ./runs)"
    )


def run(options: argparse.Namespace) -> int:
    from palaestra.runtime.progress import Reporter
    from palaestra.store.run_folder import default_root, list_runs, run_path

    paths = [run_path(name) for name in options.runs]
    reporter, code = Reporter(), 0
    for path in paths or [record.path for record in list_runs(default_root())]:
        try:
            count = _index(path, reporter)
            print(visible(f"{path.name}: {count:,} episodes can be searched"), flush=True)
        except PalaestraError as error:  # go on with the other runs
            print(visible(f"palaestra: {error}"), file=sys.stderr)
            code = error.exit_code
    return code


def _index(path: Path, reporter: Reporter) -> int:
    """Index the finished episodes of the run in `path`; return their number."""
    from palaestra.store.queries import Queries
    from palaestra.store.run_folder import RunFolder
    from palaestra.store.search_index import TextIndex

    with RunFolder.read(path) as opened:
        episodes = sum(Queries(opened.database).phases().values())
        with reporter.stage("indexing", episodes, "episodes") as stage:
            found = TextIndex(path).extend(
                opened.database,
                progress=lambda extent: stage.show(extent.indexed, {}, extent.episodes),
            )
            stage.show(found.indexed, {}, found.episodes)
    return found.indexed
