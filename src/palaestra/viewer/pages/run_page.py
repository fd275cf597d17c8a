"""One run: its settings, results, cost and training health."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from palaestra.evaluation.reports.learning_curves import (
    Metrics,
    ModelledReward,
    curve_stage,
    returns,
    smooth,
)
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.conversation import talk_json, talk_rows
from palaestra.evaluation.statistics.intervals import policies_of
from palaestra.learning.loop import alarms
from palaestra.store.liveness import mark, worker
from palaestra.store.notes import Notes
from palaestra.store.process_roster import Roster
from palaestra.store.queries import Queries, TaskStanding
from palaestra.store.run_folder import RunFolder
from palaestra.training.stage_lines import besides_stages, stage_lines
from palaestra.viewer import facts
from palaestra.viewer.charts import COLOURS, Frame, Series, bar, line_chart
from palaestra.viewer.facts import PhaseStanding, Stage
from palaestra.viewer.formatting import percent
from palaestra.viewer.site import Site

GROUPS = {
    "results": ("success", "reward", "turns", "invalid", "unscored"),
    "updates": (
        *("loss", "value_loss", "gradient_norm", "entropy", "kl", "clipped", "clipped_low"),
        *("clipped_high", "ratio_max", "explained_variance", "group_std", "discarded"),
        *("expert_entropy", "expert_max"),
    ),
    "engine, queue and staleness": (
        *("tokens_per_second", "rollout_seconds", "learn_seconds", "seconds", "stale", "gap"),
        *("gap_max", "queue", "waiting", "sampled_tokens", "prompt_tokens", "processed", "tokens"),
    ),
}
"""The groups of known metrics; others follow under a title of their own."""


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""

    def page(request: Request) -> HTMLResponse:
        with site.run(request.path_params["name"]) as opened:
            return site.page("run.html", **_shown(site, opened))

    def state(request: Request) -> JSONResponse:
        name = request.path_params["name"]
        path = site.path(name)
        live = worker(path) is not None
        return JSONResponse({"live": live, "version": f"{hash(mark(path)):x}"})

    def metrics(request: Request) -> Response:
        phase = request.query_params.get("phase", "rl")
        with site.run(request.path_params["name"]) as opened:
            return Response(_table(opened.database.metrics(phase)), media_type="text/csv")

    return [
        Route("/run/{name}", page),
        Route("/run/{name}/live.json", state),
        Route("/run/{name}/metrics.csv", metrics),
    ]


def results_of(path: Path) -> tuple[dict[str, PhaseStanding], list[Any]]:
    """Return each phase's results and their differences, from all episodes of the run in `path`."""
    with RunFolder.read(path) as opened:
        standings = Queries(opened.database).standings()
        phases = facts.by_phase(standings, facts.games_by_phase(opened.database))
        games = {name for name, of in phases.items() if of.players and of.success is None}
        return phases, _differences(standings, games)


def _shown(site: Site, opened: RunFolder) -> dict[str, Any]:
    database, queries = opened.database, Queries(opened.database)
    about = facts.about(database)
    counts = queries.phases()
    results = site.soon(opened.path, "results", partial(results_of, opened.path))
    phases, differences = results or ({}, [])
    health = [
        _health(site, opened, phase, database.metrics(phase)) for phase in database.metric_phases()
    ]
    learning_stage = curve_stage(database.metric_phases(), database.metrics)
    learning = database.metrics(learning_stage)
    players = [
        (phase, row)
        for phase, found in phases.items()
        if found.players and facts.stage_of_step(phase) is None
        for row in player_results.rows(found.players)
    ]
    talk = [
        (phase, *row)
        for phase, found in phases.items()
        if facts.stage_of_step(phase) is None
        for row in talk_rows(talk_json(found.talk).get("talk"))
    ]
    commands = player_results.strength_commands(
        about.environment, str(opened.path), policies=2 if about.recipe.get("roles") else 1
    )
    stages: list[str] | None = []
    if about.recipe.get("stage"):  # reading them imports torch, for a second or two
        stages = site.soon(opened.path, "stages", partial(stage_lines, about.recipe))
    report = _report(opened.path)
    rows = _phases(counts, phases)
    return {
        "title": opened.record.name,
        "run": opened.record,
        "live": worker(opened.path),
        "about": about,
        "roster": Roster.read(database),
        "rows": rows,
        "players": players,
        "talk": talk,
        "games": bool(phases) and all(of.players and of.success is None for of in phases.values()),
        "player_heads": player_results.HEADS,
        "strength": commands,
        "pending": None in (results, stages) or any(part["alarms"] is None for part in health),
        "episodes": sum(counts.values()),
        "invalid": _invalid(report),
        "example": report.get("example") or {},
        "differences": differences,
        "curve": _curve(learning, phases),
        "curve_players": list(returns(learning)),
        "modelled": ModelledReward.of(learning),
        "learning_stage": learning_stage,
        "tested": policies_of(list(counts)),
        "stages": about.stages,
        "time": _time(about.stages, learning),
        "health": health,
        "recipe": list(facts.flat(besides_stages(about.recipe))),
        "recipe_stages": stages,
        "notes": Notes.open(opened.path).all()[-20:][::-1],
    }


def _phases(counts: Mapping[str, int], known: Mapping[str, PhaseStanding]) -> list[Any]:
    """Return rows of (phase, episodes, standing, steps); the steps of a stage share a row."""
    steps: dict[str | None, list[str]] = {}
    for phase in counts:
        steps.setdefault(facts.stage_of_step(phase), []).append(phase)
    rows: list[Any] = []
    for phase, count in counts.items():
        stage = facts.stage_of_step(phase)
        own = steps[stage]
        if stage is None or len(own) == 1:
            rows.append((phase, count, known.get(phase), []))
        elif phase == own[0]:
            inner = [(step, counts[step], known.get(step)) for step in own]
            rows.append((stage, sum(counts[step] for step in own), None, inner))
    return rows


def _differences(standings: Sequence[TaskStanding], games: Collection[str]) -> list[Any]:
    found = []
    for prefix, what in (("test/", "held-out tasks"), ("transfer/", "transfer")):
        for (a, b), gain in facts.differences(standings, prefix, games).items():
            found.append((what, a, b, prefix, gain))
    return found


def _curve(metrics: Metrics, phases: Mapping[str, PhaseStanding]) -> Markup | None:
    """Draw the success of training rollouts, with that on held-out tasks before and after.

    If a reward model took part, its score is in the same chart, see `ModelledReward`.
    """
    if players := returns(metrics):
        return _returns_curve(players)
    points = [(float(step), row["success"]) for step, row in metrics if "success" in row]
    if not points:
        return None
    values = smooth(np.array([y for _, y in points]))
    line = [(x, float(y)) for (x, _), y in zip(points, values, strict=True)]
    lines = [Series("training rollouts", line, dots=points, colour=0)]
    if (modelled := ModelledReward.of(metrics)) is not None:
        scores = list(zip(modelled.steps.tolist(), modelled.values.tolist(), strict=True))
        lines.append(Series(modelled.label, scores, colour=COLOURS - 1))
    ends = points[0][0], points[-1][0]
    for number, policy in enumerate(policies_of(list(phases))):
        found = phases.get(f"test/{policy}")
        if found is not None and found.interval is not None:
            mean, bounds = found.interval.mean, (found.interval.low, found.interval.high)
            level = [(x, mean) for x in ends]
            band = [(x, *bounds) for x in ends]
            lines.append(Series(policy, level, band, dashed=True, colour=number + 1))
    frame = Frame(900, 280, "RL step", y_range=(0.0, 1.0), tick=lambda y: f"{100 * y:.0f} %")
    last = f"{percent(points[-1][1])} at step {ends[1]:g}"
    return line_chart(lines, frame, f"Success of training rollouts: {last}")


def _returns_curve(players: Mapping[str, tuple[Any, Any]]) -> Markup:
    """Draw the mean return of each player in training rollouts."""
    lines = []
    for number, (player, (steps, values)) in enumerate(players.items()):
        dots = list(zip(steps.tolist(), values.tolist(), strict=True))
        line = list(zip(steps.tolist(), smooth(values).tolist(), strict=True))
        lines.append(Series(player, line, dots=dots, colour=number % COLOURS))
    ends = ", ".join(f"{player} {of[1][-1]:+.2f}" for player, of in players.items() if len(of[1]))
    return line_chart(lines, Frame(900, 280, "RL step"), f"Mean returns, at the end: {ends}")


def _time(stages: Sequence[Stage], metrics: Metrics) -> list[Any]:
    """Return the use of time as (title, parts, bar), for the stages and for RL's steps."""
    found = []
    parts = [(stage.name, stage.seconds) for stage in stages]
    if parts:
        found.append(("Time by stage", parts, bar(parts, "time by stage")))
    sums = {
        name: float(sum(row.get(f"{key}seconds", 0.0) for _, row in metrics))
        for name, key in (("rollout", "rollout_"), ("learning", "learn_"), ("all", ""))
    }
    whole = sums.pop("all")
    if whole > 0 and sum(sums.values()) > 0:
        rest = max(0.0, whole - sum(sums.values()))
        inner = [*sums.items(), ("other", rest)]
        found.append(("Time within RL steps", inner, bar(inner, "time within RL steps")))
    return found


def _health(site: Site, opened: RunFolder, phase: str, metrics: Metrics) -> dict[str, Any]:
    """Return the metrics of a phase as small charts, and their alarms.

    For a run without recorded alarms, the current monitors recompute them.
    """
    names = list(dict.fromkeys(name for _, row in metrics for name in row))
    grouped = {title: [n for n in of if n in names] for title, of in GROUPS.items()}
    placed = {name for of in grouped.values() for name in of}
    grouped["other figures"] = [name for name in names if name not in placed]
    charts = {
        title: [(name, _small(name, metrics), _last(name, metrics)) for name in of]
        for title, of in grouped.items()
        if of
    }
    raised = alarms.stored_alarms(opened.database, phase)
    recorded = raised is not None
    if raised is None and not any("success" in row for _, row in metrics):
        raised, recorded = {}, True  # monitors judge learning from rollouts only
    if raised is None:
        find = partial(alarms.found_again, metrics)
        raised = site.soon(opened.path, ("alarms", phase), find)
    return {
        "phase": phase,
        "steps": len(metrics),
        "charts": charts,
        "alarms": None if raised is None else list(raised.values()),
        "recorded": recorded,
    }


def _small(name: str, metrics: Metrics) -> Markup:
    points = [(float(step), row[name]) for step, row in metrics if name in row]
    return line_chart([Series(name, points)], Frame(), f"{name} by step")


def _last(name: str, metrics: Metrics) -> float | None:
    return next((row[name] for _, row in reversed(metrics) if name in row), None)


def _table(metrics: Metrics) -> str:
    """Write the metrics of a phase as CSV."""
    names = list(dict.fromkeys(name for _, row in metrics for name in row))
    written = io.StringIO()
    out = csv.writer(written)
    out.writerow(["step", *names])
    for step, row in metrics:
        out.writerow([step, *(row.get(name, "") for name in names)])
    return written.getvalue()


def _report(path: Path) -> Mapping[str, Any]:
    """Read the report that the run wrote at its end; empty if there is none."""
    try:
        found = json.loads((path / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _invalid(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of invalid actions by phase, from the report."""
    found = {}
    for part, prefix in (("held_out", "test/"), ("transfer", "transfer/")):
        scores = (report.get(part) or {}).get("scores") or {}
        for policy, score in scores.items():
            if isinstance(score, dict) and isinstance(score.get("invalid_rate"), float):
                found[prefix + policy] = score["invalid_rate"]
    return found
