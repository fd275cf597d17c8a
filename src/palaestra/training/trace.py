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
from palaestra.core.model import is_of
from palaestra.evaluation.reports.transcript import plain
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.data.trees import branches, with_parents
from palaestra.store.damage import NAME
from palaestra.store.database import Database
from palaestra.store.parquet import ParquetTrace
from palaestra.store.run_folder import RunFolder, is_run, run_path
from palaestra.training.reinforcement_section import Reinforcement
from palaestra.training.renamed_keys import with_present_names

TURN_LIMITS = "turn_limits"  # document: maximum actions of an episode, by environment
REWARDS = ("rewards", "reward_options", "control")  # of `rl`


class Recorded(Protocol):
    """The common interface of a run's database and a Parquet file."""

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
class TurnText:
    """The last observation and the reply of a turn, each on one line."""

    observation: str
    reply: str


def open_recorded(name: str) -> tuple[Recorded, Path | None]:
    """Open the record of that name; also return its run's folder, if it lies in one.

    Args:
        name: a run's folder or name, its run.sqlite, a copy of that, or a Parquet file.

    Raises:
        InputError: nothing has that name, or it is something else.
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
    """Return the phase of that name, or by default the latest RL phase.

    Raises:
        UnknownName: no such phase.
        InputError: no name was given, and the run has no RL phase.
    """
    if name is not None:
        if name not in phases:
            raise UnknownName("phase", name, phases)
        return name
    tests = ("test/", "transfer/", "validation/", "greedy/")
    numbered = [p for p in phases if re.fullmatch(r"[^/]+/\d+", p) and not p.startswith(tests)]
    if not numbered:
        known = ", ".join(phases) or "none"
        raise InputError(f"There is no RL phase; choose one with --phase. Phases: {known}.")
    stage = numbered[-1].rpartition("/")[0]
    own = [phase for phase in numbered if phase.rpartition("/")[0] == stage]
    return max(own, key=lambda phase: int(phase.rpartition("/")[2]))


def read_trace(recorded: Recorded, phase: str, limit: int | None = None) -> Trace:
    """Read the rollouts of a phase that credit rules can compare.

    As in training, leave out episodes without a valid result, and then groups of a single rollout.
    If every group is a single rollout (a test), keep them all.

    Args:
        recorded: see `open_recorded`.
        phase: exactly as recorded.
        limit: number of groups, the first ones; None for all.

    Raises:
        InputError: no episode remains.
    """
    found = recorded.episodes(phase)
    policy = _policy(recorded.get("recipe"), phase, found)
    valid = [e for e in found if e.outcome.scored and _replied(e, policy)]
    sizes = Counter(e.key.group for e in valid)
    if max(sizes.values(), default=0) > 1:
        valid = [e for e in valid if sizes[e.key.group] > 1]
    if not valid:
        raise InputError(
            f"No episode of '{phase}' has both a valid result and recorded tokens of '{policy}'; "
            "choose another phase, of a model whose tokens are known."
        )
    first = sorted({e.key.group for e in valid})[:limit]
    kept = tuple(e for e in valid if e.key.group in first)
    shaping = _shaping(recorded, phase, kept)
    greedy = _greedy(recorded, phase, shaping)
    batch = [
        replace(shaping.trajectory(episode, policy), greedy=greedy.get(episode.key.group))
        for episode in kept
    ]
    if branches(kept):
        batch = with_parents(batch, kept)
    return Trace(phase, policy, shaping, kept, tuple(batch), len(found) - len(valid))


def turn_texts(trace: Trace) -> list[list[TurnText]]:
    """Return the texts of each turn, by rollout."""
    return [
        [
            TurnText(
                observation=plain(call.messages[-1].text) if call.messages else "",
                reply=plain("\n".join([call.reply.text, *map(str, call.reply.tool_calls)])),
            )
            for call in (episode.calls[turn.call] for turn in trajectory.turns)
        ]
        for episode, trajectory in zip(trace.episodes, trace.batch, strict=True)
    ]


def turn_limit(recorded: Recorded, environment: str) -> int:
    """Return the maximum actions of an episode; raise like `environments.registry.make`."""
    recipe = recorded.get("recipe") or {}
    chosen = recipe.get("environment")
    if isinstance(chosen, Mapping) and chosen.get("id") == environment and chosen.get("turns"):
        return int(chosen["turns"])
    for found in ((recorded.get(TURN_LIMITS) or {}).get(environment), recipe.get("turn_limit")):
        if found:
            return int(found)
    from palaestra.training.run_context import typical_turns

    return typical_turns(environment)


def documents(recorded: Recorded) -> dict[str, Any]:
    """Return the documents that `read_trace` needs where the environments are not installed."""
    recipe = recorded.get("recipe") or {}
    named = recipe.get("environment")
    chosen: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    limits = dict(recorded.get(TURN_LIMITS) or {})
    for part in ("id", "transfer"):
        if chosen.get(part):
            with suppress(InputError):  # not installed here either
                limits[chosen[part]] = turn_limit(recorded, chosen[part])
    return {"recipe": recipe, "machine": recorded.get("machine"), TURN_LIMITS: limits}


# ── details ──────────────────────────────────────────────────────────────────


def _policy(recipe: Mapping[str, Any] | None, phase: str, episodes: Sequence[Episode]) -> str:
    """Return the policy whose turns are judged: the trained one, or the one with most tokens."""
    if recipe and "rl" in recipe:
        from palaestra.training.role_adapters import POLICY

        known = any(is_of(call.policy, POLICY) for episode in episodes for call in episode.calls)
        if known or re.fullmatch(r"[^/]+/\d+", phase):  # else others demonstrate
            return POLICY
    tokens: Counter[str] = Counter()
    for episode in episodes:
        for call in episode.calls:
            tokens[call.policy] += len(call.completion)
    return tokens.most_common(1)[0][0] if tokens else "unknown"


def _replied(episode: Episode, policy: str) -> bool:
    return any(is_of(call.policy, policy) and call.completion for call in episode.calls)


def _shaping(recorded: Recorded, phase: str, episodes: Sequence[Episode]) -> Shaping:
    """Return the rewards of the run's recipe, or the defaults."""
    from palaestra.training.loop_plan import shaping
    from palaestra.training.stage_program import table_of

    recipe = with_present_names(recorded.get("recipe") or {})
    given = table_of(recipe, phase)
    part = Reinforcement.model_validate({key: given[key] for key in REWARDS if key in given})
    turns = turn_limit(recorded, episodes[0].task.environment)
    return shaping(part, turns, recipe.get("seed", 1))


def _greedy(recorded: Recorded, phase: str, shaping: Shaping) -> dict[int, float]:
    """Return the returns of ReMax's greedy rollouts beside an RL phase, by group."""
    kind, _, step = phase.rpartition("/")
    beside = f"greedy/{step}" if kind == "rl" else f"{kind}/greedy/{step}"
    if beside not in recorded.phases():
        return {}
    return {
        e.key.group: shaping.episode_return(e)
        for e in recorded.episodes(beside)
        if e.outcome.scored
    }
