"""Several evaluations side by side: `/evaluation?run=RUN&run=RUN:PHASE…&cost=money`.

The page shows a matrix of success by environment, success over cost per task with the Pareto
front, and the tasks as a heat map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaestra.evaluation.statistics.intervals import Interval
from palaestra.viewer.comparable_runs import choices
from palaestra.viewer.comparison import (
    ComparedPhase,
    Standing,
    clusters,
    compared_phase,
    evaluated,
    failed,
    standings,
    tiles,
)
from palaestra.viewer.formatting import figure
from palaestra.viewer.site import Site

MOST = 24  # phases at once
TILES = 1000  # shown
COSTS = {name: name for name in ("tokens", "seconds", "turns", "money")}  # per task, as text
COSTS["tokens"] = "tokens read and sampled"
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 300, 48, 36  # of a picture and its margins


def routes(site: Site) -> list[Route]:
    """Return the route of this page."""

    def page(request: Request) -> Response:
        names = _names(site, request.query_params.getlist("run"))
        if not names:
            offered = choices(site)
            return site.page("evaluation.html", title="evaluations", phases=(), choices=offered)
        cost = request.query_params.get("cost", "tokens")
        if cost not in COSTS:
            raise HTTPException(404, f"There is no cost '{cost}'; choose from {', '.join(COSTS)}.")
        phases = [compared_phase(site, name) for name in names[:MOST]]
        return site.page(
            "evaluation.html",
            **_page(phases, cost),
            left=max(0, len(names) - MOST),
            asked=request.query_params.getlist("run"),
        )

    return [Route("/evaluation", page)]


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the Pareto front of points (cost, success), cheapest first."""
    found: list[int] = []
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    for index in order:
        if not found or points[index][1] > points[found[-1]][1]:
            found.append(index)
    return found


@dataclass(frozen=True, slots=True)
class _Dot:
    """A phase in a picture of success over cost."""

    name: str
    x: float
    y: float
    low: float
    high: float
    front: bool
    about: str


def _names(site: Site, names: Sequence[str]) -> list[str]:
    """Return RUN:PHASE unchanged, and for RUN all its evaluation phases."""
    found: dict[str, None] = {}
    for name in names:
        run, colon, _ = name.partition(":")
        if colon:
            found[name] = None
            continue
        if run:
            with site.run(run) as opened:
                phases = evaluated(opened.database.phases())
            found.update({f"{run}:{phase}": None for phase in phases})
    return list(found)


def _page(phases: Sequence[ComparedPhase], cost: str) -> dict[str, Any]:
    cells = {compared.name: standings(compared) for compared in phases}
    environments = list(dict.fromkeys(id for of in cells.values() for id in of))
    every = tiles(phases)
    return {
        "title": "evaluations",
        "choices": (),
        "phases": phases,
        "environments": environments,
        "cells": cells,
        "pictures": [(id, *_picture(id, cells, cost)) for id in environments[:12]],
        "cost": cost,
        "costs": COSTS,
        "tiles": every[:TILES],
        "tiles_left": max(0, len(every) - TILES),
        "clusters": clusters(phases),
        "failures": [len(failed(of)) for of in phases],
        "size": (WIDTH, HEIGHT, LEFT, BOTTOM),
    }


def _round(most: float) -> float:
    """Return the end of an axis with four even parts."""
    unit = 4 * 10.0 ** math.floor(math.log10((most or 1.0) / 4))
    return next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= most)


def _picture(
    environment: str, cells: Mapping[str, Mapping[str, Standing]], cost: str
) -> tuple[list[_Dot], list[tuple[float, str]]]:
    """Return the phases in one environment as dots, and the ticks of the cost axis.

    A phase of unknown cost is left out.
    """
    known = [(name, of[environment]) for name, of in cells.items() if environment in of]
    points: list[tuple[str, float, Interval]] = []
    for name, found in known:
        spent: float | None = getattr(found, cost)
        if found.success is not None and spent is not None:
            points.append((name, spent, found.success))
    if not points:
        return [], []
    highest = _round(max(spent for _, spent, _ in points))
    front = set(pareto([(spent, rate.mean) for _, spent, rate in points]))

    def across(spent: float) -> float:
        return LEFT + (WIDTH - LEFT - 12) * spent / highest

    def up(share: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 12) * share

    dots = [
        _Dot(
            name,
            round(across(spent), 1),
            round(up(rate.mean), 1),
            round(up(rate.low), 1),
            round(up(rate.high), 1),
            i in front,
            f"{name}: {100 * rate.mean:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}], "
            f"{figure(spent)} {cost} per task",
        )
        for i, (name, spent, rate) in enumerate(points)
    ]
    marks = [(round(across(highest * i / 4), 1), figure(highest * i / 4)) for i in range(5)]
    return dots, marks
