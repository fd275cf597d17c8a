"""What one factor changes: each environment of an evaluation against the base, task by task.

Tasks of the same number differ in the factor alone, so the differences are paired by number. Seeds
and repeats of a task are averaged first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.evaluation.running.evaluation_plan import Plan
from palaestra.evaluation.statistics.intervals import (
    Interval,
    paired_difference,
    paired_scores,
    success_interval,
)

Scores = Mapping[int, float]
"""The success on each task with a result, by the number of the task."""


def table(made: Plan, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return the comparison: its factor, its base, and rows in the order of the plan.

    Args:
        made: a plan that varies a factor.
        scores: of each cell, by its phase.

    Returns:
        `factor`, `base` and `rows`, one for each agent, model and environment: `success`,
        `difference` from the base, and intervals of both; None where fewer than two tasks have a
        result in both.
    """
    assert made.factor is not None, "the plan varies no factor"
    found: dict[tuple[str, str], dict[str, list[Scores]]] = {}
    for cell in made.cells:
        of = found.setdefault((cell.agent, cell.model), {})
        of.setdefault(cell.environment, []).append(scores.get(cell.phase, {}))
    rows = []
    for (agent, model), environments in found.items():
        means = {id: _means(of) for id, of in environments.items()}
        base = means.get(made.factor.base, {})
        for id, own in means.items():
            rate = success_interval(list(own.values()))
            is_base = id == made.factor.base
            gap = None if is_base or len(own.keys() & base.keys()) < 2 else _gap(own, base)
            rows.append(
                {
                    "agent": agent,
                    "model": model,
                    "environment": id,
                    "tasks": len(own),
                    "success": rate and rate.mean,
                    "interval": rate and [rate.low, rate.high],
                    "pairs": gap.n if gap else 0,
                    "difference": gap and gap.mean,
                    "difference_interval": gap and [gap.low, gap.high],
                }
            )
    return {"factor": made.factor.name, "base": made.factor.base, "rows": rows}


HEADS = ("environment", "agent, model", "tasks", "success %", "95 %", "difference", "95 % (paired)")


def texts(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows as texts under `HEADS`; differences are in percentage points."""
    return [
        [
            row["environment"],
            f"{row['agent']}, {row['model']}",
            str(row["tasks"]),
            "" if row["success"] is None else f"{100 * row['success']:.1f}",
            _bounds(row["interval"], ""),
            "" if row["difference"] is None else f"{100 * row['difference']:+.1f}",
            _bounds(row["difference_interval"], "+"),
        ]
        for row in rows
    ]


def _bounds(interval: Sequence[float] | None, sign: str) -> str:
    if interval is None:
        return ""
    low, high = (f"{100 * bound:{sign}.1f}" for bound in interval)
    return f"{low} to {high}"


def _means(of: Sequence[Scores]) -> dict[int, float]:
    """Return the mean of each task over seeds."""
    values: dict[int, list[float]] = {}
    for scores in of:
        for task, score in scores.items():
            values.setdefault(task, []).append(score)
    return {task: sum(known) / len(known) for task, known in sorted(values.items())}


def _gap(own: Scores, base: Scores) -> Interval:
    return paired_difference(*paired_scores(own, base))
