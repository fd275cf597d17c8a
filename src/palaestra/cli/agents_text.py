"""The tables of `palaestra agents compare`: each agent, and its difference from the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestra.evaluation.reports.leaderboard import Leaderboard
    from palaestra.evaluation.statistics.intervals import Interval

Row = dict[str, Any]
WIDE = 150  # characters of a line without a terminal


def rows(
    board: Leaderboard,
    environment: str,
    agents: Sequence[str],
    calls: Mapping[tuple[str, str], Sequence[int]],
) -> list[Row]:
    """Return a row for each agent on one environment, in the given order; unknown values are None.

    Args:
        board: of one model.
        environment: its id.
        agents: the first one with a result here is the baseline.
        calls: model calls of each scored episode, by agent and environment.
    """
    from palaestra.evaluation.statistics.overall import gap

    standings = {
        c.agent: c.standings[environment] for c in board.candidates if environment in c.standings
    }
    found: list[Row] = []
    first: Mapping[int, float] = {}
    for agent in (agent for agent in agents if agent in standings):
        one = standings[agent]
        made = calls.get((agent, environment), ())
        difference: Interval | None = None
        if first.keys() & one.by_task.keys():
            difference = gap({environment: one.by_task}, {environment: first}, {environment: 1.0})
        first = first or one.by_task
        found.append(
            {
                "agent": agent,
                "success": asdict(one.success) if one.success else None,
                "difference": asdict(difference) if difference else None,
                "calls": sum(made) / len(made) if made else None,
                "faults": one.faults,
                **{name: one.means.get(name) for name in ("progress", "turns", "tokens", "money")},
            }
        )
    return found


def show(found: Row) -> None:
    """Print a table for each environment."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=WIDE, highlight=False)
    for environment, of in found["environments"].items():
        table = Table(
            box=box.SIMPLE_HEAD,
            header_style="bold",
            title=f"{environment}, {found['model']}: at most {found['tokens']} tokens read and "
            f"sampled and {found['turns'][environment]} turns per episode",
            title_justify="left",
            caption_justify="left",
        )
        lines = [_line(row) for row in of]
        for name in [n for n in lines[0] if any(line[n] for line in lines)] if lines else []:
            table.add_column(name, justify="left" if name == "agent" else "right")
        for line in lines:
            table.add_row(*(Text(line[str(column.header)]) for column in table.columns))
        console.print(table)
    console.print(
        f"Intervals are of 95 % over tasks; the difference is paired by task, against the first "
        f"agent. Tokens are counted by {found['counted_by']}. Episodes in {found['run']}."
    )
    for note in found["notes"]:
        console.print(note)


def _line(row: Row) -> dict[str, str]:
    """Return the cells of a row; empty texts for missing values."""
    gap, tasks = row["difference"], row["success"]["n"] if row["success"] else 0
    return {
        "agent": row["agent"],
        "success % (95 %)": _percent(row["success"]),
        "tasks": str(tasks),
        "against the first": _percent(gap, "+") if gap else "",
        "progress %": "" if row["progress"] is None else f"{100 * row['progress']:.0f}",
        "turns": _number(row["turns"]),
        "calls": _number(row["calls"]),
        "tokens": "" if row["tokens"] is None else f"{row['tokens']:.0f}",
        "money": "" if row["money"] is None else f"{row['money']:.4f}",
        "faults": str(row["faults"] or ""),
    }


def _percent(of: Row | None, sign: str = "") -> str:
    if of is None:
        return "–"
    mean, low, high = (f"{100 * of[name]:{sign}.0f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
