"""Runs the benchmarks one after the other, each in its own process, and writes the results.

    python benchmarks/collect.py              all of them (`make bench`)
    python benchmarks/collect.py decode rollout   these only; the others' rows stay

docs/results/performance.json gets one object per row. In docs/results/performance.md the text
between the two markers is replaced; the text around them stays.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pictures
from measuring import NOT_MEASURED
from provenance import ROOT, commit, machine

FOLDER = Path(__file__).resolve().parent
JSON = ROOT / "docs" / "results" / "performance.json"
PAGE = ROOT / "docs" / "results" / "performance.md"
IMAGES = ROOT / "docs" / "images"
SHAPE, GOALS = IMAGES / "shape.png", IMAGES / "performance.png"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

# What runs, in this order; a pattern stands for all benchmarks it matches.
ORDER = (
    "limits",
    "rollout",
    "rollout_*",
    "backend",
    "adapters",
    "probes",
    "quantised",
    "decode",
    "first_token",
    "attention",
    "learner*",
    "step*",
    "overhead*",
    "latency",
    "team_messages",
    "actors",
    "programs",
    "memory",
    "shape",
    "evaluation_*",
    "viewer",
    "sandbox",
    "environments",
    "apps",
)
OPTIONS = {"shape": ["--plot", str(SHAPE)]}
PATIENCE = 7200  # seconds that a benchmark may take, the installation of its peer included

Row = dict[str, Any]


def benchmarks() -> list[str]:
    """The names of all benchmarks, in the order in which they run."""
    found: list[str] = []
    for pattern in ORDER:
        for file in sorted(FOLDER.glob(f"{pattern}.py")):
            if file.stem not in found and 'if __name__ == "__main__"' in file.read_text():
                found.append(file.stem)
    return found


def rows_of(name: str) -> list[Row]:
    """Run one benchmark; what fails becomes a row that says why it was not measured."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", *OPTIONS.get(name, [])]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return [missing(name, f"it took longer than {PATIENCE // 60} minutes")]
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        if done.returncode != NOT_MEASURED:
            print(done.stderr, file=sys.stderr)
        return [missing(name, said[-1].removeprefix("not measured: "))]
    printed = json.loads(done.stdout)
    rows: list[Row] = printed if isinstance(printed, list) else [printed]
    return [{"benchmark": name, **row} for row in rows]


def missing(name: str, reason: str) -> Row:
    """The row of a benchmark that has no figures."""
    nothing = dict.fromkeys(("ratio", "goal", "low", "high", "limit_fraction"))
    return {
        "benchmark": name,
        "name": name,
        **nothing,
        "machine": machine(),
        "commit": commit(),
        "figures": {},
        "not_measured": reason,
    }


def merged(old: Sequence[Row], new: Sequence[Row], order: Sequence[str]) -> list[Row]:
    """The new rows, and the old ones of benchmarks that were not run again but still exist."""
    again = {row["benchmark"] for row in new}
    kept = [row for row in old if row["benchmark"] not in again and row["benchmark"] in order]
    return sorted([*kept, *new], key=lambda row: order.index(row["benchmark"]))


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown: one table per machine and commit, then what was not measured."""
    parts: list[str] = []
    measured = [row for row in rows if row["ratio"] is not None]
    for place in dict.fromkeys((row["machine"], row["commit"]) for row in measured):
        parts.append(f"Machine: {place[0]}. Commit of the code: `{place[1]}`.\n")
        parts.append("| what | ratio (of the rounds) | goal | of the limit | medians | command |")
        parts.append("| --- | --- | --- | --- | --- | --- |")
        parts += [_line(row) for row in measured if (row["machine"], row["commit"]) == place]
        parts.append("")
    absent = [row for row in rows if row["ratio"] is None]
    if absent:
        parts.append("Not measured:\n")
        parts += [f"- `{row['benchmark']}`: {row['not_measured']}" for row in absent]
        parts.append("")
    return "\n".join(parts)


def _line(row: Row) -> str:
    goal = "" if row["goal"] is None else f"{row['goal']:g}"
    if goal:
        goal += ", reached" if row["ratio"] >= row["goal"] else ", **missed**"
    limit = "" if row["limit_fraction"] is None else f"{row['limit_fraction']:.0%}"
    cells = [
        row["name"],
        f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
        goal,
        limit,
        "; ".join(f"{name}: {value:,.4g}" for name, value in row["figures"].items()),
        f"`python benchmarks/{row['benchmark']}.py`",
    ]
    return "| " + " | ".join(cells) + " |"


def images() -> str:
    """Links to the pictures that there are."""
    captions = {GOALS: "ratios against their goals", SHAPE: "cost against four sizes"}
    links = [
        f"![{caption}](../images/{file.name})\n"
        for file, caption in captions.items()
        if file.is_file()
    ]
    return "\n" + "\n".join(links) if links else ""


def rewritten(page: str, figures: str) -> str:
    """The page with new text between its markers.

    Raises:
        ValueError: the page lacks a marker.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no '{BEGIN}' followed by '{END}'; put them back")
    return f"{before}{BEGIN}\n{figures.rstrip()}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    order = benchmarks()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(order)}")
    names = parser.parse_args().names or order
    unknown = [name for name in names if name not in order]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; known: {', '.join(order)}")
    page = PAGE.read_text()
    rewritten(page, "")  # fails before the work, not after it
    rows: list[Row] = []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} …", end=" ", flush=True, file=sys.stderr)
        started = time.monotonic()
        rows += rows_of(name)
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    old = json.loads(JSON.read_text()) if JSON.is_file() else []
    rows = merged(old, rows, order)
    JSON.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    if any(row["goal"] and row["ratio"] is not None for row in rows):
        pictures.goals(rows, GOALS)
    PAGE.write_text(rewritten(page, table(rows) + images()))
    absent = [row["benchmark"] for row in rows if row["ratio"] is None]
    if absent:
        print(f"not measured: {', '.join(absent)}; {PAGE.name} says why", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
