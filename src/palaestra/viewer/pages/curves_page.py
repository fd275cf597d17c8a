"""Several runs side by side: their learning curves and the differences of their recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from palaestra.evaluation.reports.learning_curves import Metrics, curve_stage, smooth
from palaestra.store.queries import Queries, TaskStanding
from palaestra.store.run_folder import RunFolder
from palaestra.viewer import facts
from palaestra.viewer.charts import COLOURS, Frame, Series, line_chart
from palaestra.viewer.facts import About
from palaestra.viewer.formatting import figure
from palaestra.viewer.run_result import Result, result
from palaestra.viewer.site import Site

MOST = COLOURS  # runs at once
Z = 1.96  # of a 95 % interval
Band = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """One of the compared runs."""

    name: str
    about: About
    metrics: Metrics
    result: Result | None
    band: Sequence[Band]  # of the success of training rollouts: step, low, high


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""

    def page(request: Request) -> HTMLResponse:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST]
        runs = [_read(site, name) for name in names]
        metrics = sorted({name for run in runs for _, row in run.metrics for name in row})
        usual = "success" if "success" in metrics or "reward" not in metrics else "reward"
        metric = request.query_params.get("metric", usual)
        if metrics and metric not in metrics:
            raise HTTPException(404, f"None of these runs recorded '{metric}'; choose another.")
        rows = _differences([run.about for run in runs])
        return site.page(
            "curves.html",
            title="curves",
            runs=runs,
            metric=metric,
            metrics=metrics,
            chart=_chart(runs, metric) if metrics else None,
            banded=metric == "success" and any(run.band for run in runs),
            rows=[(key, values) for key, values in rows if len({*map(str, values)}) > 1],
            shared=sum(len({*map(str, values)}) == 1 for _, values in rows),
        )

    return [Route("/curves", page)]


def _read(site: Site, name: str) -> Compared:
    with site.run(name) as opened:
        database = opened.database
        metrics = database.metrics(curve_stage(database.metric_phases(), database.metrics))
        found = site.soon(opened.path, "bands", partial(_bands, opened.path)) or []
        return Compared(name, facts.about(database), metrics, result(database), found)


def _bands(path: Path) -> list[Band]:
    with RunFolder.read(path) as opened:
        database = opened.database
        stage = curve_stage(database.metric_phases(), database.metrics)
        return bands(Queries(database).standings(f"{stage}/"))


def bands(standings: Sequence[TaskStanding]) -> list[Band]:
    """Return 95 % intervals of each step's success over its tasks (normal, within [0, 1])."""
    scores: dict[int, list[float]] = {}
    for task in standings:
        step = task.phase.rpartition("/")[2]
        if task.success is not None and step.isdigit():
            scores.setdefault(int(step), []).append(task.success)
    found = []
    for number, of in sorted(scores.items()):
        if len(of) > 1:
            half = Z * stdev(of) / sqrt(len(of))
            mean = fmean(of)
            found.append((float(number), max(0.0, mean - half), min(1.0, mean + half)))
    return found


def _chart(runs: Sequence[Compared], metric: str) -> Any:
    lines = []
    for number, run in enumerate(runs):
        points = [(float(step), row[metric]) for step, row in run.metrics if metric in row]
        line = points
        if metric == "success" and points:
            values = smooth(np.array([y for _, y in points]))
            line = [(x, float(y)) for (x, _), y in zip(points, values, strict=True)]
        band = _smoothed(run.band, points) if metric == "success" else ()
        lines.append(Series(run.name, line, band, colour=number))
    if metric == "success":
        frame = Frame(900, 340, "RL step", y_range=(0.0, 1.0), tick=lambda y: f"{100 * y:.0f} %")
    else:
        frame = Frame(900, 340, "RL step")
    ends = [f"{s.name} ends at {figure(s.points[-1][1])}" for s in lines if s.points]
    return line_chart(lines, frame, f"{metric} by step: {'; '.join(ends)}")


def _smoothed(band: Sequence[Band], points: Sequence[tuple[float, float]]) -> list[Band]:
    """Smooth the band like its line, and drop steps that the line does not have yet."""
    steps = {step for step, _ in points}
    known = [one for one in band if one[0] in steps]
    if not known:
        return []
    lows, highs = (smooth(np.array([one[bound] for one in known])) for bound in (1, 2))
    return [
        (one[0], float(low), float(high)) for one, low, high in zip(known, lows, highs, strict=True)
    ]


def _differences(abouts: Sequence[About]) -> list[tuple[str, list[Any]]]:
    """Return the value of each recipe key in each run; None if a recipe lacks it."""
    recipes = [dict(facts.flat(about.recipe)) for about in abouts]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    return [(key, [recipe.get(key) for recipe in recipes]) for key in keys]
