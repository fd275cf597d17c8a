"""The result of an evaluation as `palaestra eval` prints and stores it, and its title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestra.evaluation.running.evaluation_plan import Cell, Plan
    from palaestra.evaluation.running.evaluation_run import Done


def result_of(
    made: Plan,
    done: Done,
    found: dict[str, dict[str, Any]],
    folder: str,
    scores: Mapping[str, Mapping[int, float]],
) -> dict[str, Any]:
    """Return the result to print and store: the only cell, or all cells and their totals.

    Args:
        made: the plan.
        done: what of it was done.
        found: the summary of each cell, by phase.
        folder: of the run.
        scores: the success on each task of each cell, by phase.
    """
    from palaestra.evaluation.reports import factor_table
    from palaestra.evaluation.reports.cell_samples import totals

    whole: dict[str, Any] = {
        "complete": done.stopped is None,
        "stopped": done.stopped,
        "shard": str(made.shard) if made.shard else None,
        "seconds": done.seconds,
        "run": folder,
    }
    cells = [
        {
            **found[cell.phase],
            "seconds": done.cell_seconds.get(cell.phase, 0.0),
            "planned": len(made.numbers(cell)) * cell.repeats,
            "phase": cell.phase,
            **_terms(cell),
        }
        for cell in made.cells
    ]
    if len(cells) == 1 and made.suite is None:
        return {**cells[0], **whole, **settings_of(made)}
    sums = ("episodes", "scored", "planned")
    return {
        **settings_of(made),
        **whole,
        **{name: sum(cell[name] for cell in cells) for name in sums},
        **totals(cells),
        "cells": cells,
        "skipped": made.skipped,
        **({} if made.factor is None else {"compared": factor_table.table(made, scores)}),
    }


def settings_of(made: Plan) -> dict[str, Any]:
    """Return the run's document "recipe"."""
    about = {"command": "eval", "summary": title_of(made)}
    shard = {"shard": str(made.shard)} if made.shard else {}
    if len(made.cells) == 1 and made.suite is None:
        return about | _terms(made.cells[0]) | shard
    suite = {} if made.suite is None else {"suite": made.suite.title, "hash": made.suite.hash}
    lists = {
        f"{name}s": list(dict.fromkeys(getattr(cell, name) for cell in made.cells))
        for name in ("environment", "agent", "model", "seed")
    }
    factor = {} if made.factor is None else {"factor": made.factor.name}
    return about | suite | factor | lists | {"cells": len(made.cells)} | shard


def _terms(cell: Cell) -> dict[str, Any]:
    names = ("agent", "model", "split", "seed", "repeats", "temperature", "max_tokens")
    chosen = {name: getattr(cell, name) for name in names}
    return {
        "environment": cell.environment,
        "turn_limit": cell.turns,
        "roles": cell.roles,
        "deadline": cell.seconds,
        "tried": cell.tried,
        "reasoning_tokens": cell.reasoning_tokens,
        "context": cell.context,
        "keep_thoughts": cell.keep_thoughts,
        **chosen,
    }


def title_of(made: Plan) -> str:
    if len(made.cells) == 1 and made.suite is None:
        return made.cells[0].title
    environments = len({cell.environment for cell in made.cells})
    where = f"the suite {made.suite.title}" if made.suite else f"{environments} environments"
    pairs = len({(cell.agent, cell.model) for cell in made.cells})
    return f"{pairs} agents and models on {where}, {len(made.cells)} cells"
