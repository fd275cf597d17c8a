"""Tables of results pages, which studies write between two comments."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Case = TypeVar("Case")
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


def write_table(page: str, name: str, rows: Iterable[str]) -> None:
    """Replace what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->` in a page."""
    file = RESULTS / page
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = file.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{file} has no place for the table '{name}'; add {begin} and {end}.")
    table = "\n".join(rows)
    file.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")


def run_cases(
    about: str | None,
    name: str,
    tasks: int,
    head: str,
    cases: Iterable[Case],
    line: Callable[[Case, int, Path], str],
) -> int:
    """Run the command line of a study of cases, each a row of the table `name` in teams.md.

    Args:
        about: the script's docstring.
        name: of the table.
        tasks: of each case, unless `--tasks` says otherwise.
        head: the table's first row.
        cases: what is run.
        line: runs a case with a number of tasks and a folder; returns its row.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=tasks)
    parser.add_argument("--folder", type=Path, help="for team files and runs (default: temporary)")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    rows = [head, "|" + " --- |" * (head.count("|") - 1)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            rows.append(line(case, options.tasks, folder))
            print(rows[-1], flush=True)
    if options.write:
        write_table("teams.md", name, rows)
    return 0
