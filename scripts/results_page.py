"""Tables of results pages, which studies write between two comments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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
