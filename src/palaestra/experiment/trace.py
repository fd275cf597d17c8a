"""Traces: recorded episodes of one phase, as the trajectories that credit rules see.

A trace is read from a run's folder, from its database or a copy of it, or from a
Parquet file. Rewards are those of the run's own recipe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.evaluation.transcript import plain
from palaestra.experiment.sections import Reinforcement
from palaestra.learning.rewards import Shaping
from palaestra.learning.trajectory import Trajectory
from palaestra.models.expert import ExpertModel
from palaestra.store.damage import NAME
from palaestra.store.database import Database
from palaestra.store.parquet import ParquetTrace
from palaestra.store.run import RunFolder, is_run, run_path

TURN_LIMITS = "turn_limits"  # document: the most actions of an episode, by environment
REWARDS = (  # of `rl`
    "turn_cost",
    "invalid_cost",
    "progress_reward",
    "world_reward",
    "overlong",
    "control",
)


class Recorded(Protocol):
    """What a database and a Parquet file have in common."""

    def phases(self) -> list[str]: ...
    def episodes(self, phase: str) -> list[Episode]: ...
    def get(self, name: str) -> Any: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Trace:
    """The comparable rollouts of one phase."""

    phase: str
    policy: str  # whose turns these are
    shaping: Shaping
    episodes: tuple[Episode, ...]
    batch: tuple[Trajectory, ...]  # of `episodes`, in their order
    left_out: int  # episodes of the phase without a valid result, tokens or siblings

    @property
    def environment(self) -> str:
        return self.episodes[0].task.environment


@dataclass(frozen=True, slots=True)
class Words:
    """What a turn was about, each on one line."""

    seen: str
    said: str


def open_recorded(name: str) -> tuple[Recorded, Path | None]:
    """The record of that name, and the folder of its run if it lies in one.

    Args:
        name: a run's folder or name, its run.sqlite, a copy of that, or a Parquet file.

    Raises:
        InputError: there is nothing of that name, or it is something else.
    """
    path = Path(name).expanduser()
    if path.suffix == ".parquet":
        return ParquetTrace.open(path), None
    folder = path.parent if path.name == NAME else run_path(path)
    if (folder / "run.json").is_file() or (folder != path.parent and is_run(folder)):
        return RunFolder.read(folder).database, folder
    if path.is_file():
        return Database.open(path, readonly=True), None
    raise InputError(
        f"There is no trace '{name}': give a run's folder or name (`palaestra list runs`), its "
        "run.sqlite or a copy of it, or a Parquet file of `palaestra export`."
    )


def choose_phase(phases: Sequence[str], name: str | None) -> str:
    """The phase of that name; without one, the latest of RL.

    Raises:
        UnknownName: no such phase.
        InputError: none was named, and there is none of RL.
    """
    if name is not None:
        if name not in phases:
            raise UnknownName("phase", name, phases)
        return name
    numbered = [phase for phase in phases if re.fullmatch(r"rl/\d+", phase)]
    if not numbered:
        known = ", ".join(phases) or "none"
        raise InputError(f"There is no RL phase; choose one with --phase. Phases: {known}.")
    return max(numbered, key=lambda phase: int(phase.removeprefix("rl/")))


def read_trace(recorded: Recorded, phase: str, limit: int | None = None) -> Trace:
    """The rollouts of a phase that rules can compare.

    As in training, episodes without a valid result are left out, and what then is alone in
    its group; where every group is a single rollout (a test), they all stay.

    Args:
        recorded: see `open_recorded`.
        phase: exactly as it is recorded.
        limit: groups, the first ones; None for all.

    Raises:
        InputError: no episode remains.
    """
    found = recorded.episodes(phase)
    policy = _policy(recorded.get("recipe"), phase, found)
    told = [e for e in found if e.outcome.scored and _said(e, policy)]
    sizes = Counter(e.key.group for e in told)
    if max(sizes.values(), default=0) > 1:
        told = [e for e in told if sizes[e.key.group] > 1]
    if not told:
        raise InputError(
            f"No episode of '{phase}' has both a valid result and recorded tokens of '{policy}'; "
            "choose another phase, lived by a model whose tokens are known."
        )
    first = sorted({e.key.group for e in told})[:limit]
    kept = tuple(e for e in told if e.key.group in first)
    shaping = _shaping(recorded, kept)
    greedy = _greedy(recorded, phase, shaping)
    batch = tuple(
        replace(shaping.trajectory(episode, policy), greedy=greedy.get(episode.key.group))
        for episode in kept
    )
    return Trace(phase, policy, shaping, kept, batch, len(found) - len(told))


def words(trace: Trace) -> list[list[Words]]:
    """Of each turn, the last thing that the policy had read and what it said."""
    return [
        [
            Words(
                seen=plain(call.messages[-1].content) if call.messages else "",
                said=plain(call.reply.content),
            )
            for call in (episode.calls[turn.call] for turn in trajectory.turns)
        ]
        for episode, trajectory in zip(trace.episodes, trace.batch, strict=True)
    ]


def turn_limit(recorded: Recorded, environment: str) -> int:
    """The most actions of an episode there; raises like `environments.registry.make`."""
    recipe = recorded.get("recipe") or {}
    world = recipe.get("environment")
    if isinstance(world, Mapping) and world.get("id") == environment and world.get("turns"):
        return int(world["turns"])
    for found in ((recorded.get(TURN_LIMITS) or {}).get(environment), recipe.get("turn_limit")):
        if found:
            return int(found)
    from palaestra.experiment.setting import typical_turns

    return typical_turns(environment)


def documents(recorded: Recorded) -> dict[str, Any]:
    """What `read_trace` needs to know besides the episodes, where the worlds are not installed."""
    recipe = recorded.get("recipe") or {}
    named = recipe.get("environment")
    world: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    limits = dict(recorded.get(TURN_LIMITS) or {})
    for part in ("id", "transfer"):
        if world.get(part):
            with suppress(InputError):  # not installed here either
                limits[world[part]] = turn_limit(recorded, world[part])
    return {"recipe": recipe, "machine": recorded.get("machine"), TURN_LIMITS: limits}


# ── details ──────────────────────────────────────────────────────────────────


def _policy(recipe: Mapping[str, Any] | None, phase: str, episodes: Sequence[Episode]) -> str:
    """Whose turns are judged: the trained policy's, or of whoever sampled most tokens."""
    if phase == "demonstrations":
        return ExpertModel.name
    if recipe and "rl" in recipe:
        from palaestra.experiment.policy import POLICY

        return POLICY
    spoken: Counter[str] = Counter()
    for episode in episodes:
        for call in episode.calls:
            spoken[call.policy] += len(call.completion)
    return spoken.most_common(1)[0][0] if spoken else "nobody"


def _said(episode: Episode, policy: str) -> bool:
    return any(call.policy == policy and call.completion for call in episode.calls)


def _shaping(recorded: Recorded, episodes: Sequence[Episode]) -> Shaping:
    """As the run's own training has it; the defaults where no recipe says it."""
    from palaestra.experiment.plan import shaping

    recipe = recorded.get("recipe") or {}
    given = recipe.get("rl") or {}
    part = Reinforcement.model_validate({key: given[key] for key in REWARDS if key in given})
    turns = turn_limit(recorded, episodes[0].task.environment)
    return shaping(part, turns, recipe.get("seed", 1))


def _greedy(recorded: Recorded, phase: str, shaping: Shaping) -> dict[int, float]:
    """Returns of the greedy rollouts that a run of ReMax made beside an RL phase, by group."""
    kind, _, step = phase.partition("/")
    beside = f"greedy/{step}"
    if kind != "rl" or beside not in recorded.phases():
        return {}
    return {
        e.key.group: shaping.episode_return(e)
        for e in recorded.episodes(beside)
        if e.outcome.scored
    }
