"""Writes the tables of docs/algorithms.md from what is registered.

python scripts/algorithm_tables.py           rewrite them
python scripts/algorithm_tables.py --check   exit with 1 if they are not current
"""

from __future__ import annotations

import sys
from pathlib import Path

from palaestra.learning.methods.algorithms import ALGORITHMS, Method, algorithm
from palaestra.learning.methods.component import Kind, components
from palaestra.training.usable_parts import algorithms, lack, parts

PAGE = Path(__file__).parents[1] / "docs/algorithms.md"
START, END = "<!-- tables: written by scripts/algorithm_tables.py -->", "<!-- end of tables -->"
TITLES = {
    Kind.CREDIT: "Credit rules",
    Kind.REWARD: "Reward terms",
    Kind.LOSS: "Losses",
    Kind.CORRECTION: "Off-policy corrections",
    Kind.FILTER: "Group filters",
    Kind.CURRICULUM: "Curricula",
    Kind.EXAMPLES: "What to imitate",
}


def tables() -> str:
    """Return the tables of usable parts by kind, then the others with what a training run lacks."""
    rows = [
        "## Combinations",
        "",
        _row("name", "what it is", "parts", "needs", "source", "status"),
        LINE * 6,
    ]
    for name in algorithms():
        one, method = algorithm(name), Method(algorithm(name))
        used = [one.credit, one.loss, str(one.aggregation)]
        used += [one.filter] if one.filter != "all" else []
        needs = ", ".join(sorted(method.needs))
        cells = one.summary, ", ".join(used), needs, one.source, str(method.status)
        rows.append(_row(f"`{name}`", *cells))
    for kind, title in TITLES.items():
        head = _row("name", "what it does", "options", "needs", "source", "status")
        rows += ["", f"## {title}", "", head, LINE * 6]
        for part in parts(kind).values():
            options = ", ".join(f"{name} = {value!s}" for name, value in part.options.items())
            needs = ", ".join(sorted(part.needs))
            shown = f"`{part.name}`", part.summary, options, needs, part.source, str(part.status)
            rows.append(_row(*shown))
    rows += ["", *_unreached()]
    return "\n".join(row if not row.startswith("---") else f"| {row[:-3]} |" for row in rows)


def _unreached() -> list[str]:
    """Return the table of the parts that no recipe can use."""
    rows = [
        "## What no recipe can use yet",
        "",
        "A recipe that names one of these is refused. Call these functions in your own training",
        "loop; `palaestra list KIND --all` shows them, too.",
        "",
        _row("name", "kind", "what it does", "lacks", "source", "status"),
        LINE * 6,
    ]
    for name, one in ALGORITHMS.items():
        method = Method(one)
        if lacking := lack(method.needs):
            cells = "algorithm", one.summary, lacking, one.source, str(method.status)
            rows.append(_row(f"`{name}`", *cells))
    for kind in Kind:
        for part in components(kind).values():
            if lacking := lack(part.needs):
                cells = str(kind), part.summary, lacking, part.source, str(part.status)
                rows.append(_row(f"`{part.name}`", *cells))
    return rows


LINE = "--- | "


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    text = PAGE.read_text()
    before, after = text.partition(START)[0], text.partition(END)[2]
    current = f"{before}{START}\n\n{tables()}\n\n{END}{after}"
    if "--check" in sys.argv:
        return int(current != text)
    PAGE.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
