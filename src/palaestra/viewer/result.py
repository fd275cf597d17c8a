"""How a run did, in one figure, or why there is none.

A training run is judged by the last policy that it tested. An evaluation of one contender (an
agent with its models) is judged by its weighted mean over environments, as on a leaderboard; one
of several contenders has no figure of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from palaestra.evaluation import overall
from palaestra.evaluation.plan import Cell
from palaestra.evaluation.statistics import Interval
from palaestra.store.database import Database
from palaestra.store.queries import Queries
from palaestra.viewer import facts


@dataclass(frozen=True, slots=True)
class Result:
    """How a run did."""

    measured: str  # on what, in words
    tasks: int  # with a scored episode
    success: float | None  # within [0, 1]
    interval: Interval | None  # 95 %
    contenders: int = 1  # more than one: there is no success of the whole


def result(database: Database) -> Result | None:
    """How the run did; None before its first episode outside of training."""
    queries = Queries(database)
    cells = facts.plan_of(database).cells
    if len(cells) > 1:
        return _evaluation(cells, queries)
    phase = facts.telling([name for name in queries.phases() if not name.startswith("rl/")])
    found = facts.by_phase(queries.standings(phase) if phase else []).get(phase)
    if found is None:
        return None
    return Result(f"{phase}, {found.environment}", found.tasks, found.success, found.interval)


def _evaluation(cells: Sequence[Cell], queries: Queries) -> Result | None:
    world_of = {cell.phase: cell.environment for cell in cells}
    scores: dict[str, dict[int, list[float]]] = {}  # of each world and task: of every seed
    for task in queries.standings("eval"):
        world = world_of.get(task.phase)
        if world is not None and task.success is not None:
            scores.setdefault(world, {}).setdefault(task.group, []).append(task.success)
    worlds = dict.fromkeys(world_of.values())
    tasks = sum(len(of) for of in scores.values())
    on = f"{len(scores)} of {len(worlds)}" if len(scores) < len(worlds) else f"{len(worlds)}"
    on = f"mean of {on} environments" if len(worlds) > 1 else next(iter(worlds))
    contenders = len({(c.agent, c.model, tuple(sorted(c.roles.items()))) for c in cells})
    if contenders > 1:
        return Result(f"{len(worlds)} environments", tasks, None, None, contenders)
    if not scores:
        return None
    weights = {cell.environment: cell.weight for cell in reversed(cells)}
    rates = [overall.rate([fmean(of) for of in by_task.values()]) for by_task in scores.values()]
    mean = overall.combined(rates, [weights[world] for world in scores])
    return Result(on, tasks, mean.mean, mean)
