"""`palaestra show RUN --metrics`: every measure of the episodes of a run, phase by phase.

Means are over tasks, repeats averaged first, with intervals over tasks; pass@k and pass^k stand
there where tasks were repeated. What no episode says is left out, not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.episode import Episode

Row = dict[str, Any]


def measured(episodes: Sequence[Episode], by: str | None) -> Row:
    """Measures of the episodes of one phase, and success by what `by` tells apart.

    Raises:
        UnknownName: no episode has a label or parameter `by`.
    """
    from palaestra.evaluation.metrics import METRICS, breakdown, summarise
    from palaestra.evaluation.repeats import reliability

    found = {name: summarise(episodes, measure) for name, measure in METRICS.items()}
    repeats = reliability(episodes)
    parts = breakdown(episodes, by) if by else {}
    return {
        "episodes": len(episodes),
        "metrics": {name: asdict(one) for name, one in found.items()},
        "repeats": {name: asdict(one) for name, one in repeats.items() if name[5:] != "1"},
        "by": {value: asdict(part) for value, part in parts.items()},
    }


def show(phase: str, row: Row, by: str | None, console: Console) -> None:
    """Print what `measured` found of a phase."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = [
        (name, one["mean"], one["interval"], one["tasks"])
        for name, one in row["metrics"].items()
        if one["mean"] is not None
    ]
    lines += [(name, one["mean"], one, one["n"]) for name, one in row["repeats"].items()]
    for value, part in row["by"].items():
        rate = part["success"]
        named = f"success, {by} {value or '(none)'}"
        lines.append((named, rate and rate["mean"], rate, rate["n"] if rate else 0))
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for head in ("metric", "mean", "95 %", "tasks"):
        table.add_column(head, justify="left" if head == "metric" else "right")
    for name, mean, interval, tasks in lines:
        figure = "" if mean is None else f"{mean:.4g}"
        table.add_row(Text(name), figure, _bounds(interval), str(tasks))
    console.print(f"{phase}, {row['episodes']} episodes", markup=False)
    console.print(table)


def _bounds(interval: Row | None) -> str:
    return "" if interval is None else f"{interval['low']:.4g} to {interval['high']:.4g}"
