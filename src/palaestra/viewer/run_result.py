"""The result of a run as one number, or why there is none.

A training run is represented by the last policy that it tested. An evaluation of one candidate (an
agent with its models) is represented by the weighted mean over environments, as on a leaderboard;
an evaluation of several candidates has no single number. A game between players has the return of
each instead, and takes no part in a mean.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from palaestra.evaluation.running.evaluation_plan import Cell
from palaestra.evaluation.statistics import overall
from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.player_results import PlayerScore, has_success
from palaestra.store.database import Database
from palaestra.store.queries import Queries
from palaestra.store.recorded_players import game_environments
from palaestra.viewer import facts


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    measured: str  # what it was measured on, as text
    tasks: int  # with a scored episode
    success: float | None  # within [0, 1]
    interval: Interval | None  # 95 %
    candidates: int = 1  # more than one: no single success
    players: Mapping[str, PlayerScore] = field(default_factory=dict)  # of a game


def result(database: Database) -> Result | None:
    """Return the result of the run; None before its first episode outside of training."""
    queries = Queries(database)
    cells = facts.plan_of(database).cells
    if len(cells) > 1:
        return _evaluation(cells, queries, game_environments(database))
    phase = facts.main_phase(
        [name for name in queries.phases() if facts.stage_of_step(name) is None]
    )
    if not phase:
        return None
    games = facts.games_by_phase(database, phase)
    found = facts.by_phase(queries.standings(phase), games).get(phase)
    if found is None:
        return None
    on = f"{phase}, {found.environment}"
    return Result(on, found.tasks, found.success, found.interval, players=found.players)


def _evaluation(
    cells: Sequence[Cell], queries: Queries, games: Mapping[str, Collection[str]]
) -> Result | None:
    environment_of = {
        cell.phase: cell.environment
        for cell in cells
        if cell.environment not in games.get(cell.phase, ()) or has_success(cell.environment)
    }
    scores: dict[str, dict[int, list[float]]] = {}  # by environment and task: of every seed
    for task in queries.standings("eval"):
        id = environment_of.get(task.phase)
        if id is not None and task.success is not None:
            scores.setdefault(id, {}).setdefault(task.group, []).append(task.success)
    if not environment_of:
        return None
    environments = dict.fromkeys(environment_of.values())
    tasks = sum(len(of) for of in scores.values())
    total = len(environments)
    on = f"{len(scores)} of {total}" if len(scores) < total else f"{total}"
    on = f"mean of {on} environments" if total > 1 else next(iter(environments))
    candidates = len({(c.agent, c.model, tuple(sorted(c.roles.items()))) for c in cells})
    if candidates > 1:
        return Result(f"{total} environments", tasks, None, None, candidates)
    if not scores:
        return None
    weights = {cell.environment: cell.weight for cell in reversed(cells)}
    rates = [overall.rate([fmean(of) for of in by_task.values()]) for by_task in scores.values()]
    mean = overall.combined(rates, [weights[id] for id in scores])
    return Result(on, tasks, mean.mean, mean)
