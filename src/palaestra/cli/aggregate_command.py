"""`palaestra aggregate`: aggregate several training seeds, and compare two methods."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from palaestra.cli.diff_command import Side, read_side
from palaestra.cli.tables import table
from palaestra.core.errors import InputError

EXAMPLE = "palaestra aggregate runs/ours-1 runs/ours-2 --against runs/theirs-1 runs/theirs-2"
THRESHOLDS = tuple(i / 10 for i in range(10))  # of the performance profile
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="runs of one method with different seeds: folders, names, or RUN:PHASE",
    )  # fmt: skip
    parser.add_argument(
        "--against", nargs="+", default=[], metavar="RUN", help="runs of another method"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.running.environment_versions import refuse_other_versions
    from palaestra.evaluation.statistics.aggregates import probability_of_improvement, score_table

    sides = [read_side(name) for name in (*options.runs, *options.against)]
    refuse_other_versions([(side.name, side.versions) for side in sides])
    means = [_success(side) for side in sides]
    ours, theirs = means[: len(options.runs)], means[len(options.runs) :]
    scores, environments = score_table([*ours, *theirs])  # shared by all runs
    left = sorted({name for of in (*ours, *theirs) for name in of} - set(environments))
    halves = {"a": scores[: len(ours)], **({"b": scores[len(ours) :]} if theirs else {})}
    found: Row = {"environments": environments, "left_out": left}
    for side, rows in halves.items():
        found[side] = {"runs": len(rows), **_figures(rows)}
    better = probability_of_improvement(*halves.values()) if theirs else None
    found["probability_of_improvement"] = better and asdict(better)
    if options.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _success(side: Side) -> dict[str, float]:
    """Return the mean success over the tasks of each environment of a run."""
    from palaestra.evaluation.statistics.intervals import task_scores
    from palaestra.evaluation.statistics.player_results import refuse_games

    refuse_games(side.episodes, [side.name])
    of: dict[str, list[Any]] = {}
    for episode in side.episodes:
        of.setdefault(episode.task.environment, []).append(episode)
    scores = {name: task_scores(episodes) for name, episodes in of.items()}
    means = {name: sum(by.values()) / len(by) for name, by in scores.items() if by}
    if not means:
        raise InputError(f"{side.name} has no episode with a result; evaluate it first.")
    return means


def _figures(scores: Any) -> Row:
    from palaestra.evaluation.statistics import aggregates

    statistics = {
        "interquartile mean": aggregates.interquartile_mean,
        "mean": aggregates.mean,
        "median": aggregates.median,
        "optimality gap": aggregates.optimality_gap,
    }
    profile = aggregates.bootstrap(scores, aggregates.performance_profile(THRESHOLDS))
    return {
        "figures": {
            name: asdict(aggregates.bootstrap(scores, statistic)[0])
            for name, statistic in statistics.items()
        },
        "profile": [
            {"above": threshold, **asdict(share)}
            for threshold, share in zip(THRESHOLDS, profile, strict=True)
        ],
    }


def _show(found: Row) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    sides = [side for side in ("a", "b") if side in found]
    counts = " against ".join(f"{found[side]['runs']} runs" for side in sides)
    environments = found["environments"]
    console.print(f"{counts}, success on {', '.join(environments)}", markup=False, soft_wrap=True)
    if found["left_out"]:
        note = f"Left out, because not all runs have it: {', '.join(found['left_out'])}."
        console.print(note, markup=False, soft_wrap=True)
    heads = ["", *(part for side in sides for part in (side.upper(), "95 %"))]
    names = list(found["a"]["figures"])
    rows = [[name, *_cells(found[side]["figures"][name] for side in sides)] for name in names]
    for index, threshold in enumerate(THRESHOLDS):
        profiles = (found[side]["profile"][index] for side in sides)
        rows.append([f"share of scores above {threshold:.0%}", *_cells(profiles)])
    console.print(table(heads, rows))
    better = found["probability_of_improvement"]
    if better:
        mean, bounds = _cells([better])
        console.print(f"A run of A beats one of B with probability {mean} ({bounds}).")
    if min(found[side]["runs"] for side in sides) < 10:
        console.print(
            "With fewer than 10 seeds, bootstrap intervals are too narrow: with 3, a 95 % interval "
            "contained the truth in 82 % of simulations.",
            style="dim", soft_wrap=True,
        )  # fmt: skip


def _cells(intervals: Iterable[Row]) -> list[str]:
    cells: list[str] = []
    for of in intervals:
        mean, low, high = (100 * of[part] for part in ("mean", "low", "high"))
        cells += [f"{mean:.1f} %", f"{low:.1f} to {high:.1f}"]
    return cells
