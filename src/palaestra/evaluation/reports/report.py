"""The report of a training run: its results, their uncertainty and their cost.

It is built from the run's store alone, at any time: a stage that has not run is
missing from the report, and the rest stays valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from palaestra.core.episode import Episode
from palaestra.evaluation.reports import transcript
from palaestra.evaluation.reports.learning_curves import Metrics, curve_stage
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.conversation import Talk, conversation, talk_json, talk_of
from palaestra.evaluation.statistics.intervals import (
    POLICIES,
    Comparison,
    Interval,
    compare,
    compared_policies,
    policies_of,
)
from palaestra.evaluation.statistics.player_results import PlayerScore

GENERAL_LOSS = "general_loss"
"""The JSON value of a run: the loss on held-out general text by version, in nats per token."""


REMARKS = "test_remarks"
"""The JSON value of a run: sentences about its tests that the report repeats."""


class Source(Protocol):
    """The part of a run's store that a report needs."""

    def episodes(self, phase: str) -> Sequence[Episode]:
        """Return the finished episodes of a phase; empty if it has not run."""

    def phases(self) -> list[str]:
        """Return the phases with finished episodes, in the order of their first one."""

    def metric_phases(self) -> list[str]:
        """Return the phases that have metrics, in the order of their first step."""

    def metrics(self, phase: str) -> Metrics:
        """Return the metrics of each step of a phase; empty if it has not run."""

    def get(self, key: str) -> Any:
        """Return a JSON value of the run; None if it was never set."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The cost of one stage of the run."""

    name: str
    seconds: float
    sampled_tokens: int
    prompt_tokens: int
    trained_tokens: int
    peak_memory_bytes: int | None = None  # of the process by the stage's end, if recorded

    @property
    def tokens_per_second(self) -> float:
        """The tokens read, sampled and trained on, per second."""
        tokens = self.sampled_tokens + self.prompt_tokens + self.trained_tokens
        return tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report of a run, as data."""

    run: Path
    model: Path | None  # the final model; None before training has finished
    seconds: float  # of the whole run so far
    seconds_setup: float | None
    peak_memory_bytes: int | None
    held_out: Comparison
    transfer: Comparison  # on an environment never trained on; without scores if not run
    curve: Metrics  # of the RL stage
    example: tuple[Episode, Episode] | None  # one held-out task, before and after
    stages: tuple[Stage, ...]
    recipe: Mapping[str, Any]
    machine: Mapping[str, Any]
    alarms: Sequence[Mapping[str, Any]] | None  # raised by monitors; None: not recorded
    policies: tuple[str, ...] = POLICIES  # that are tested, in the order of training
    general_loss: Mapping[str, float] = field(default_factory=dict)
    """Loss on held-out general text by version, in nats per token; empty if not measured."""

    remarks: tuple[str, ...] = ()  # about the tasks of its tests, one sentence each

    talk: Talk | None = None  # of several players, in the last test; None: nothing was said

    @property
    def success(self) -> dict[str, Interval]:
        """The success on the held-out tasks, by policy, if there is one."""
        return self.held_out.success

    @property
    def players(self) -> dict[str, PlayerScore]:
        """The results of each player in the last test, in order; empty for a single player."""
        return next((score.players for score in reversed(self.held_out.scores.values())), {})


def build(source: Source, run: Path, *, model: Path | None = None) -> Report:
    """Build the report of a run from the current state of its store.

    Args:
        source: the run's store.
        run: the run's folder, as shown to the user.
        model: the path of the final model, if there is one.
    """
    stages = tuple(_stage(row) for row in source.get("stages") or ())
    totals = source.get("totals") or {}
    peaks = [stage.peak_memory_bytes for stage in stages if stage.peak_memory_bytes]
    policies = policies_of(source.phases(), staged=bool((source.get("recipe") or {}).get("stage")))
    tested = {policy: source.episodes(f"test/{policy}") for policy in policies}
    finished = [policy for policy in policies if tested[policy]]
    transferred = {policy: source.episodes(f"transfer/{policy}") for policy in policies}
    learning = curve_stage(source.metric_phases(), source.metrics)
    pair = (tested[finished[0]], tested[finished[-1]]) if len(finished) > 1 else ((), ())
    return Report(
        run=run,
        model=model,
        seconds=totals.get("seconds", sum(stage.seconds for stage in stages)),
        seconds_setup=totals.get("seconds_setup"),
        peak_memory_bytes=totals.get("peak_memory_bytes", max(peaks, default=None)),
        held_out=compare(tested),
        transfer=compare(transferred),
        curve=tuple(source.metrics(learning)),
        example=transcript.choose_pair(*pair),
        stages=stages,
        recipe=source.get("recipe") or {},
        machine=source.get("machine") or {},
        alarms=source.get(f"alarms/{learning}"),
        policies=policies,
        general_loss=source.get(GENERAL_LOSS) or {},
        remarks=(*(source.get(REMARKS) or ()), *_repeated(tested), *_repeated(transferred)),
        talk=talk_of(map(conversation, tested[finished[-1]])) if finished else None,
    )


def summary(report: Report) -> dict[str, Any]:
    """Return the object that `palaestra train --json` prints; stages not run are null."""
    success, paired = report.success, report.held_out.paired
    names = [f"{a}_minus_{b}" for a, b in compared_policies(report.policies)]
    return {
        "run": str(report.run),
        "seconds": report.seconds,
        "peak_memory_bytes": report.peak_memory_bytes,
        "success": {p: asdict(success[p]) if p in success else None for p in report.policies},
        "paired": {n: asdict(paired[n]) if n in paired else None for n in names},
    }


def as_json(report: Report) -> dict[str, Any]:
    """Return the whole report as a JSON object: `summary` and all other fields."""
    whole = {
        **summary(report),
        "model": str(report.model) if report.model else None,
        "seconds_setup": report.seconds_setup,
        "held_out": _comparison(report.held_out),
        "transfer": _comparison(report.transfer) if report.transfer.scores else None,
        "stages": [
            {**asdict(stage), "tokens_per_second": stage.tokens_per_second}
            for stage in report.stages
        ],
        "curve": [{"step": step, **values} for step, values in report.curve],
        "example": _example(report),
        "recipe": report.recipe,
        "machine": report.machine,
        "alarms": report.alarms,
        "remarks": list(report.remarks),
        "players": player_results.as_json(report.players),
        "general_loss": report.general_loss,
        **talk_json(report.talk),
    }
    return {key: finite(value) for key, value in whole.items()}


def _repeated(episodes: Mapping[str, Sequence[Episode]]) -> list[str]:
    """Return a sentence if episodes that count as different tasks are of the same one.

    Older versions of palaestra tested so where a split has few tasks.
    """
    for of in episodes.values():
        counted = len({episode.key.group for episode in of})
        distinct = len({(episode.task.environment, episode.task.id) for episode in of})
        if distinct < counted:
            task = of[0].task
            return [
                f"'{task.environment}' has {distinct} {task.split} tasks, and {counted} episodes "
                "repeat them, so intervals are too narrow."
            ]
    return []


def _stage(row: Mapping[str, Any]) -> Stage:
    return Stage(
        name=row["name"],
        seconds=row["seconds"],
        sampled_tokens=row["sampled_tokens"],
        prompt_tokens=row["prompt_tokens"],
        trained_tokens=row["trained_tokens"],
        peak_memory_bytes=row.get("peak_memory_bytes"),
    )


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON; only the scores of games have `players`."""
    found = asdict(comparison)
    for score in found["scores"].values():
        if not score["players"]:
            del score["players"]
    return found


def _example(report: Report) -> dict[str, Any] | None:
    if report.example is None:
        return None
    return {
        when: {
            "episode": str(episode.key),
            "task": episode.task.id,
            "outcome": str(episode.outcome),
            "reward": episode.reward,
            "turns": [_turn(turn) for turn in transcript.turns(episode)],
        }
        for when, episode in zip(("before", "after"), report.example, strict=True)
    }


def _turn(turn: transcript.Turn) -> dict[str, Any]:
    """Return a turn as JSON; only turns of several players name them."""
    found = asdict(turn)
    return found if turn.player else {n: v for n, v in found.items() if n in _OF_ONE_PLAYER}


_OF_ONE_PLAYER = ("observation", "action", "reward", "valid")


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot represent (a diverged loss, say) by null."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
