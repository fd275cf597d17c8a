"""Writes the tables of docs/algorithms.md from what is registered.

python scripts/algorithm_tables.py           rewrite them
python scripts/algorithm_tables.py --check   exit with 1 if they are not current
"""

from __future__ import annotations

import sys
from pathlib import Path

from palaestra.learning.algorithms import ALGORITHMS, Method
from palaestra.learning.component import Kind, components

PAGE = Path(__file__).parents[1] / "docs/algorithms.md"
START, END = "<!-- tables: written by scripts/algorithm_tables.py -->", "<!-- end of tables -->"
TITLES = {
    Kind.CREDIT: "Credit rules",
    Kind.LOSS: "Losses",
    Kind.CORRECTION: "Off-policy corrections",
    Kind.FILTER: "Group filters",
    Kind.CURRICULUM: "Curricula",
    Kind.EXAMPLES: "What to imitate",
    Kind.PREFERENCE: "Preference losses",
}


def tables() -> str:
    parts = [
        "## Combinations",
        "",
        _row("name", "what it is", "parts", "needs", "source"),
        LINE * 5,
    ]
    for name, algorithm in ALGORITHMS.items():
        used = [algorithm.credit, algorithm.loss, str(algorithm.aggregation)]
        used += [algorithm.filter] if algorithm.filter != "all" else []
        needs = ", ".join(sorted(Method(algorithm).needs))
        named = f"`{name}`", algorithm.summary, ", ".join(used), needs, algorithm.source
        parts.append(_row(*named))
    for kind, title in TITLES.items():
        head = _row("name", "what it does", "options", "needs", "source", "status")
        parts += ["", f"## {title}", "", head, LINE * 6]
        for part in components(kind).values():
            options = ", ".join(f"{name} = {value!s}" for name, value in part.options.items())
            needs = ", ".join(sorted(part.needs))
            shown = f"`{part.name}`", part.summary, options, needs, part.source, str(part.status)
            parts.append(_row(*shown))
    return "\n".join(part if not part.startswith("---") else f"| {part[:-3]} |" for part in parts)


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
