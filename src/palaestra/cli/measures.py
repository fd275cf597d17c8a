"""`palaestra show RUN --metrics` and `--drift`: metrics of the episodes, phase by phase.

Means are over tasks, repeats averaged first, with intervals over tasks. There are pass@k and pass^k
if tasks were repeated, and calibration if agents reported their confidence. Metrics without data
are left out, not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table
from palaestra.core.errors import GroupTooSmall, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.episode import Episode

Row = dict[str, Any]
PARTS = 5  # of an episode, for drift


def measured(episodes: Sequence[Episode], by: str | None = None, context: int | None = None) -> Row:
    """Return the metrics of a phase's episodes, and success grouped by `by`.

    With `context`, also the share of a context of that many tokens that the longest prompt fills.

    Raises:
        UnknownName: no episode has a label or parameter `by`.
    """
    from palaestra.evaluation.statistics import player_results
    from palaestra.evaluation.statistics.episode_metrics import (
        METRICS,
        breakdown,
        context_use,
        summarise,
    )
    from palaestra.evaluation.statistics.repeats import reliability
    from palaestra.evaluation.statistics.scenario_completion import scenario_completion
    from palaestra.evaluation.statistics.self_report import calibration

    measures = dict(METRICS | ({"context_use": context_use(context)} if context else {}))
    players = player_results.scores_of(episodes)
    environments = {episode.task.environment for episode in episodes}
    one = all(player_results.has_success(id, players) for id in environments)
    if not one and by:
        raise InputError(
            "--by groups success, and games between players have none; leave it out, or see the "
            "return of each with `palaestra show RUN`."
        )
    if not one:
        measures = {n: m for n, m in measures.items() if n not in ("success", "reward")}
    for player in players:
        measures[f"return, {player}"] = player_results.return_of(player)
    found = {name: summarise(episodes, measure) for name, measure in measures.items()}
    repeats = reliability(episodes) if one else {}
    parts = breakdown(episodes, by) if by else {}
    try:
        confidence = asdict(calibration(episodes))
    except GroupTooSmall:  # no agent reported its confidence
        confidence = None
    try:
        whole = scenario_completion(episodes) if one else None
    except GroupTooSmall:
        whole = None
    return {
        "episodes": len(episodes),
        "metrics": {name: asdict(one) for name, one in found.items()},
        "repeats": {name: asdict(one) for name, one in repeats.items() if name[5:] != "1"},
        "scenarios": whole and asdict(whole),
        "by": {value: asdict(part) for value, part in parts.items()},
        "calibration": confidence,
    }


def moved(episodes: Sequence[Episode]) -> Row:
    """Return the drift of each turn value from the first fifth of an episode to its last."""
    from palaestra.evaluation.statistics.drift import TURN_VALUES, drift

    return {name: asdict(drift(episodes, name, parts=PARTS)) for name in TURN_VALUES}


def show(phase: str, row: Row, by: str | None, console: Console) -> None:
    """Print the metrics of a phase, from `measured`."""
    lines = [
        (name, one["mean"], one["interval"], one["tasks"])
        for name, one in row["metrics"].items()
        if one["mean"] is not None
    ]
    lines += [(name, one["mean"], one, one["n"]) for name, one in row["repeats"].items()]
    if whole := row["scenarios"]:
        lines.append(("scenario completion", whole["mean"], whole, whole["n"]))
    for value, part in row["by"].items():
        rate = part["success"]
        named = f"success, {by} {value or '(none)'}"
        lines.append((named, rate and rate["mean"], rate, rate["n"] if rate else 0))
    rows = [[name, _figure(mean), _bounds(of), str(tasks)] for name, mean, of, tasks in lines]
    console.print(f"{phase}, {row['episodes']} episodes", markup=False)
    console.print(table(["metric", "mean", "95 %", "tasks"], rows))
    if row["calibration"] is not None:
        _show_calibration(row["calibration"], console)


def show_moved(phase: str, row: Row, console: Console) -> None:
    """Print the drift of a phase, from `moved`."""
    rows = [
        [name, *map(_short, of["parts"]), _signed(of["change"]), _bounds(of["change"])]
        for name, of in row.items()
        if any(of["counts"])
    ]
    heads = [f"{place}/{PARTS}" for place in range(1, PARTS + 1)]
    note = "turns by fifth of the episode; change: later half minus earlier"
    console.print(f"{phase}: {note}", markup=False)
    console.print(table(["value", *heads, "change", "95 %"], rows))


def _show_calibration(found: Row, console: Console) -> None:
    over = found["overconfidence"]
    bias = f"; reported minus solved {_signed(over)} ({_bounds(over)})" if over else ""
    console.print(
        f"self-reports: {found['n']} of {found['n'] + found['silent']} episodes, Brier "
        f"{found['brier']:.3f}, expected calibration error {found['ece']:.3f}{bias}",
        markup=False,
    )
    rows = [
        [
            f"{part['low']:.1f} to {part['high']:.1f}",
            str(part["count"]),
            _figure(part["reported"]),
            _figure(part["solved"]),
        ]
        for part in found["bins"]
    ]
    console.print(table(["reported", "episodes", "mean", "solved"], rows))


def _figure(mean: float | None) -> str:
    return "" if mean is None else f"{mean:.4g}"


def _short(mean: float | None) -> str:
    return "" if mean is None else f"{mean:.3g}"


def _signed(interval: Row | None) -> str:
    return "" if interval is None else f"{interval['mean']:+.3g}"


def _bounds(interval: Row | None) -> str:
    return "" if interval is None else f"{interval['low']:.3g} to {interval['high']:.3g}"
