"""Samples: the values of finished evaluation episodes that tables need, cell by cell.

A part is the episodes of one cell in one run: all of them, or those of its shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from palaestra.core.episode import Episode, PlayerResult
from palaestra.core.outcome import Owner
from palaestra.evaluation.running import environment_versions, evaluation_plan
from palaestra.evaluation.running.evaluation_plan import Cell, Plan
from palaestra.evaluation.running.suite import Suite
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.conversation import conversation, talk_json, talk_of
from palaestra.evaluation.statistics.costs import Prices, Spent, added, recorded_name, total
from palaestra.evaluation.statistics.intervals import score
from palaestra.store.run_folder import RunFolder

_COUNTS = ("prompt_tokens", "sampled_tokens", "unknown_calls", "unpriced_calls")


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one finished episode that tables need."""

    task: int
    seed: int
    member: int
    scored: bool
    infrastructure: bool  # whether infrastructure broke it
    solved: float
    progress: float | None
    reward: float
    turns: float
    invalid: int  # number of invalid actions
    tokens: float  # prompt and sampled tokens
    seconds: float  # from reset to end, with other episodes running
    money: float | None  # None if a part of it is unknown
    players: Mapping[str, PlayerResult] = field(default_factory=dict)  # if there are several


@dataclass(frozen=True, slots=True)
class Part:
    """The episodes of one cell in one run."""

    cell: Cell
    planned: frozenset[tuple[int, int, int]]  # task, seed and member, of the whole cell
    samples: tuple[Sample, ...]
    created: datetime  # of the run
    suite: Suite | None
    version: str  # of the palaestra that made the run
    judged_by: str | None = None  # the version of the environment, where it was recorded


def read(run: Path) -> list[Part]:
    """Read the cells of an evaluation run, finished or not.

    Raises:
        InputError: there is no run, or it is not an evaluation.
    """
    with RunFolder.read(run) as opened:
        document = opened.database.get(evaluation_plan.DOCUMENT)
        made = evaluation_plan.from_json(document, run)
        versions = opened.database.get(environment_versions.DOCUMENT) or {}
        return [
            Part(
                cell,
                frozenset((t, cell.seed, m) for t in cell.tasks for m in range(cell.repeats)),
                tuple(_samples(cell, made, opened.database.episodes(cell.phase))),
                opened.record.created,
                made.suite,
                opened.record.palaestra,
                versions.get(cell.environment),
            )
            for cell in made.cells
        ]


def _samples(cell: Cell, made: Plan, episodes: Iterable[Episode]) -> Iterable[Sample]:
    names = {recorded_name(name) for name in (cell.model, *cell.roles.values())}
    priced = bool(names & made.prices.keys())
    for episode in episodes:
        cost = total(episode.calls, made.prices)
        yield Sample(
            task=episode.key.group,
            seed=cell.seed,
            member=episode.key.member,
            scored=episode.outcome.scored,
            infrastructure=episode.outcome.owner is Owner.INFRASTRUCTURE,
            solved=float(episode.outcome.solved),
            progress=episode.progress,
            reward=episode.reward,
            turns=len(episode.steps),
            invalid=episode.invalid_turns,
            tokens=cost.tokens,
            seconds=episode.usage.seconds,
            money=_whole(cost) if priced else None,
            players=episode.players,
        )


def _whole(cost: Spent) -> float | None:
    """Return an episode's cost in money; None if a part of it is unknown."""
    return None if cost.unpriced or cost.unknown else cost.money or 0.0


def summary(episodes: Sequence[Episode], prices: Prices) -> dict[str, Any]:
    """Return the values that `palaestra eval` reports for a cell; missing ones are None.

    Only cells with several players have `players`, and success only if they share it; and `talk`
    only if they said anything to each other.
    """
    found = score(episodes)
    rate = found.success
    scored = [episode for episode in episodes if episode.outcome.scored]
    progress = [episode.progress for episode in scored if episode.progress is not None]
    spent = total((call for episode in episodes for call in episode.calls), prices)
    return {
        "success": rate.mean if rate else None,
        "interval": [rate.low, rate.high] if rate else None,
        "tasks": len({episode.key.group for episode in scored}),
        "episodes": found.episodes,
        "scored": found.episodes - found.faults,
        "reward": found.reward,
        "progress": sum(progress) / len(progress) if progress else None,
        "turns": found.turns,
        "invalid_rate": found.invalid_rate,
        "faults": {str(o): sum(e.outcome.owner is o for e in episodes) for o in Owner},
        "outcomes": found.outcomes,
        "prompt_tokens": spent.read,
        "sampled_tokens": spent.sampled,
        "money": spent.money,
        "unknown_calls": spent.unknown,
        "unpriced_calls": spent.unpriced,
        **({"players": player_results.as_json(found.players)} if found.players else {}),
        **(talk_json(talk_of(map(conversation, scored))) if found.players else {}),
    }


def totals(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the costs in the summaries of cells.

    `money` is the cost of the calls to models with a price, null if there are none;
    `unpriced_calls` and `unknown_calls` count the calls that it leaves out, wholly or in part.
    """
    found: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), "money": None}
    for cell in cells:
        found |= {name: found[name] + cell[name] for name in _COUNTS}
        found["money"] = added(found["money"], cell["money"])
    return found
