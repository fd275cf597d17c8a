"""`palaestra diff A B C…`: compare several runs with the first, with corrected p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.episode import Episode

Row = dict[str, Any]


def against(first: tuple[str, list[Episode]], others: Sequence[tuple[str, list[Episode]]]) -> Row:
    """Return the difference of each other run from the first, on their common tasks.

    The p-values are of permutation tests; `holm` bounds the probability of even one false positive
    among all tests, `benjamini_hochberg` the expected share of false positives.

    Raises:
        InputError: one of them shares no task with the first.
    """
    from palaestra.evaluation.reports.run_diff import diff
    from palaestra.evaluation.statistics.multiple_testing import benjamini_hochberg, holm

    name, episodes = first
    found = [diff(episodes, theirs, (name, other)) for other, theirs in others]
    p_values = [one.permutation for one in found]
    rows = [
        {
            "run": other,
            "tasks": one.tasks,
            "success": [rate and asdict(rate) for rate in one.success],
            "difference": one.difference and asdict(one.difference),
            "p": p,
            "holm": familywise,
            "benjamini_hochberg": false_discovery,
        }
        for (other, _), one, p, familywise, false_discovery in zip(
            others, found, p_values, holm(p_values), benjamini_hochberg(p_values), strict=True
        )
    ]
    return {"a": name, "others": rows}


def show(found: Row, console: Console) -> None:
    """Print the comparison of `against`."""
    console.print(f"A  {found['a']}; points are minus A", markup=False, soft_wrap=True)
    rows = []
    for number, row in enumerate(found["others"]):
        letter = chr(ord("B") + number) if number < 25 else str(number + 2)
        console.print(f"{letter}  {row['run']}", markup=False, soft_wrap=True)
        before, after = (f"{100 * of['mean']:.1f} %" if of else "" for of in row["success"])
        change, bounds = "", ""
        if row["difference"]:
            mean, low, high = (100 * row["difference"][part] for part in ("mean", "low", "high"))
            change, bounds = f"{mean:+.1f}", f"{low:+.1f} to {high:+.1f}"
        tests = [_p(row[name]) for name in ("p", "holm", "benjamini_hochberg")]
        rows.append([letter, str(row["tasks"]), before, after, change, bounds, *tests])
    heads = ["", "tasks", "A", "own", "points", "95 %", "p", "Holm", "B-H"]
    console.print(table(heads, rows))
    console.print(
        "Holm's p-values bound the probability of even one false positive among these "
        "comparisons, Benjamini and Hochberg's (B-H) the share of false positives.",
        style="dim", soft_wrap=True,
    )  # fmt: skip


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
