"""Facts about a run: its kind, settings, cost and results, from its documents and its episodes.

Older runs, unfinished runs and runs of future commands lack some of the documents: unknown values
are None, and the page says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from palaestra.core.errors import InputError
from palaestra.evaluation.running import evaluation_plan
from palaestra.evaluation.running.evaluation_plan import Plan
from palaestra.evaluation.statistics.conversation import Talk, conversation, talk_of
from palaestra.evaluation.statistics.intervals import (
    Interval,
    compared_policies,
    paired_difference,
    policies_of,
    success_interval,
)
from palaestra.evaluation.statistics.player_results import (
    PlayerScore,
    has_success,
    player_scores,
)
from palaestra.store.database import Database
from palaestra.store.queries import TaskStanding
from palaestra.store.recorded_players import game_environments, phase_games
from palaestra.training.renamed_keys import with_present_names

TESTED = ("test", "validation", "eval", "transfer", "cell")
"""How phases of evaluations begin."""

COSTS = ("cost", "cost_usd", "money", "dollars")
"""Names of the cost in a total or an evaluation."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The cost of one stage of a run."""

    name: str
    seconds: float
    read: float  # tokens
    sampled: float  # tokens
    trained: float  # tokens
    peak_memory: float | None  # bytes

    @property
    def speed(self) -> float | None:
        """The tokens read, sampled and trained on, per second."""
        return (self.read + self.sampled + self.trained) / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class About:
    """The facts in a run's documents."""

    kind: str  # "train" or "eval"
    summary: str
    environment: str
    model: str
    agent: str
    machine: str
    seconds: float | None
    tokens: float | None  # read and sampled
    cost: float | None  # in the currency of the prices; None: no known price
    partial: bool  # whether it omits calls without a price, or without a number of tokens
    peak_memory: float | None
    recipe: Mapping[str, Any]
    stages: Sequence[Stage]


def about(database: Database) -> About:
    """Return what is known of the run."""
    recipe, totals = (
        with_present_names(_mapping(database.get("recipe"))),
        _mapping(database.get("totals")),
    )
    evaluation = _mapping(database.get("evaluation"))
    machine = _mapping(database.get("machine"))
    stages = [_mapping(stage) for stage in _list(database.get("stages"))]
    spent = [_number(row, name) for row in (*stages, evaluation) for name in _TOKENS]
    tokens = [number for number in spent if number is not None]
    cores, size = machine.get("cores"), _number(machine, "memory_bytes")
    parts = [machine.get("cpu"), machine.get("gpu"), f"{cores} cores" if cores else None]
    parts.append(f"{size / 1e9:.0f} GB" if size else None)
    return About(
        kind="eval" if recipe.get("command") == "eval" else "train",
        summary=str(recipe.get("summary") or ""),
        environment=_name(recipe.get("environment") or recipe.get("environments")),
        model=_name(recipe.get("model") or recipe.get("models")),
        agent=_name(recipe.get("agent") or recipe.get("agents")),
        machine=", ".join(str(part) for part in parts if part),
        seconds=_first(_number(totals, "seconds"), _number(evaluation, "seconds")),
        tokens=sum(tokens) if tokens else None,
        cost=_first(*(_number(row, name) for row in (totals, evaluation) for name in COSTS)),
        partial=any(row.get(name) for row in (totals, evaluation) for name in _LEFT_OUT),
        peak_memory=_number(totals, "peak_memory_bytes"),
        recipe=recipe,
        stages=[_stage(row) for row in stages],
    )


def policy_name(database: Database) -> str:
    """Return "AGENT with MODEL" of a run; what it lacks is left out."""
    found = about(database)
    return " with ".join(part for part in (found.agent, found.model) if part)


def plan_of(database: Database) -> Plan:
    """Return the plan of an evaluation; an empty one for any other run."""
    document = database.get(evaluation_plan.DOCUMENT)
    if document is None:
        return Plan(())
    try:
        return evaluation_plan.from_json(document, database.path)
    except InputError:  # written by another version; its episodes can still be shown
        return Plan(())


@dataclass(frozen=True, slots=True)
class PhaseStanding:
    """The results of one phase; means are over scored episodes."""

    phase: str
    environment: str
    episodes: int
    faults: int  # not scored: the environment or the infrastructure broke
    tasks: int  # with a scored episode
    success: float | None  # mean over tasks
    interval: Interval | None  # 95 %, over tasks
    reward: float | None
    turns: float | None
    sampled_tokens: int
    players: Mapping[str, PlayerScore] = field(default_factory=dict)  # empty for a single player
    talk: Talk | None = None  # of several players; None: nothing was said


@dataclass(frozen=True, slots=True)
class Games:
    """The results of several players in the scored episodes of a phase, and what they said."""

    players: Mapping[str, PlayerScore]  # empty without a scored episode
    talk: Talk | None = None  # None: nothing was said


NO_GAMES = Games({})


def by_phase(
    standings: Sequence[TaskStanding], games: Mapping[str, Games] = MappingProxyType({})
) -> dict[str, PhaseStanding]:
    """Aggregate the tasks of each phase; `games` of several players, by phase."""
    of: dict[str, list[TaskStanding]] = {}
    for task in standings:
        of.setdefault(task.phase, []).append(task)
    return {phase: _phase(phase, tasks, games.get(phase, NO_GAMES)) for phase, tasks in of.items()}


def games_by_phase(database: Database, phase: str = "") -> dict[str, Games]:
    """Return what several players reached and said in each phase with games, or in one phase."""
    found = {}
    for name in game_environments(database, phase):
        played, said = [], []
        for game in phase_games(database, name):
            if game.outcome.scored:
                played.append((game.key.group, game.players))
                said.append(conversation(game).counts)
        found[name] = Games(player_scores(played), talk_of(said))
    return found


def differences(
    standings: Sequence[TaskStanding], prefix: str = "test/", games: Collection[str] = ()
) -> dict[tuple[str, str], Interval]:
    """Return the change by training on the same tasks, for each pair of tested policies.

    Phases of `games` have no success that could change.
    """
    scores: dict[str, dict[int, float]] = {}
    for task in standings:
        if task.success is not None and task.phase not in games:
            scores.setdefault(task.phase, {})[task.group] = task.success
    found = {}
    phases = [phase for phase in scores if phase.startswith(prefix)]
    versions = policies_of([f"test/{phase.removeprefix(prefix)}" for phase in phases])
    for a, b in compared_policies(versions):
        after, before = scores.get(prefix + a, {}), scores.get(prefix + b, {})
        both = sorted(after.keys() & before.keys())
        if len(both) > 1:
            found[a, b] = paired_difference([after[g] for g in both], [before[g] for g in both])
    return found


def stage_of_step(phase: str) -> str | None:
    """Return the stage whose numbered step recorded a phase; None for other phases."""
    stage, _, number = phase.rpartition("/")
    return stage if number.isdigit() and "/" not in stage and stage not in TESTED else None


def main_phase(phases: Sequence[str]) -> str:
    """Return the phase that represents a run: the last tested policy's, else the last one."""
    tested = [f"test/{policy}" for policy in reversed(policies_of(phases))]
    found = [phase for phase in tested if phase in phases]
    return (found or list(phases[-1:]) or [""])[0]


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a recipe as in `--set`, with their values."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_TOKENS = ("sampled_tokens", "prompt_tokens")
_LEFT_OUT = ("unpriced_calls", "unknown_calls")


def money_per_episode(database: Database, phase: str) -> float | None:
    """Return the mean cost of a phase's episodes in money; None if a part of it is unknown."""
    evaluation = _mapping(database.get("evaluation"))
    for cell in map(_mapping, _list(evaluation.get("cells")) or [evaluation]):
        if cell.get("phase") == phase and not any(cell.get(name) for name in _LEFT_OUT):
            money, episodes = _number(cell, "money"), _number(cell, "episodes")
            return money / episodes if money is not None and episodes else None
    return None


def _stage(row: Mapping[str, Any]) -> Stage:
    return Stage(
        name=str(row.get("name") or "?"),
        seconds=_number(row, "seconds") or 0.0,
        read=_number(row, "prompt_tokens") or 0.0,
        sampled=_number(row, "sampled_tokens") or 0.0,
        trained=_number(row, "trained_tokens") or 0.0,
        peak_memory=_number(row, "peak_memory_bytes"),
    )


def _phase(phase: str, tasks: Sequence[TaskStanding], games: Games) -> PhaseStanding:
    players = games.players
    one = all(has_success(id, players) for id in {task.environment for task in tasks})
    scored = sum(task.scored for task in tasks)
    scores = [task.success for task in tasks if task.success is not None]
    episodes = sum(task.episodes for task in tasks)
    return PhaseStanding(
        phase=phase,
        environment=", ".join(dict.fromkeys(task.environment for task in tasks)),
        episodes=episodes,
        faults=episodes - scored,
        tasks=len(scores),
        success=sum(scores) / len(scores) if scores and one else None,
        interval=success_interval(scores) if one else None,
        reward=sum(task.reward for task in tasks) / scored if scored and not players else None,
        turns=sum(task.turns for task in tasks) / scored if scored else None,
        sampled_tokens=sum(task.sampled_tokens for task in tasks),
        players=players,
        talk=games.talk,
    )


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _list(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list) else []


def _number(row: Mapping[str, Any], name: str) -> float | None:
    found = row.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _first(*found: float | None) -> float | None:
    return next((number for number in found if number is not None), None)


def _name(found: Any) -> str:
    """Return the name of a part of a recipe: itself, its id or name, or those of its parts."""
    if isinstance(found, Mapping):
        named = found.get("id") or found.get("name") or found.get("mixture")
        return _name(named) if named else ", ".join(str(key) for key in found)
    if isinstance(found, list):
        return ", ".join(_name(part) for part in found)
    return "" if found is None else str(found)
