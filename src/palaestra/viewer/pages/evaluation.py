"""Several evaluations beside each other: `/evaluation?run=RUN&run=RUN:PHASE…&cost=money`.

A matrix of success by environment, success against what a task costs with the Pareto front, and
the tasks as a heat map.
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

from palaestra.evaluation.statistics import Interval
from palaestra.viewer.choices import choices
from palaestra.viewer.sides import Side, Standing, clusters, evaluated, side_of, standings, tiles
from palaestra.viewer.site import Site
from palaestra.viewer.words import figure

MOST = 24  # sides at once
TILES = 1000  # shown
COSTS = {name: name for name in ("tokens", "seconds", "turns", "money")}  # of a task, in words
COSTS["tokens"] = "tokens read and sampled"
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 300, 48, 36  # of a picture and its margins


def routes(site: Site) -> list[Route]:
    """The route of this page."""

    def page(request: Request) -> Response:
        names = _sides(site, request.query_params.getlist("run"))
        if not names:
            offered = choices(site)
            return site.page("evaluation.html", title="evaluations", sides=(), choices=offered)
        cost = request.query_params.get("cost", "tokens")
        if cost not in COSTS:
            raise HTTPException(404, f"There is no cost '{cost}'; known: {', '.join(COSTS)}.")
        sides = [side_of(site, name) for name in names[:MOST]]
        return site.page(
            "evaluation.html",
            **_page(sides, cost),
            left=max(0, len(names) - MOST),
            asked=request.query_params.getlist("run"),
        )

    return [Route("/evaluation", page)]


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which of the points (cost, success) no other beats in both, cheapest first."""
    found: list[int] = []
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    for index in order:
        if not found or points[index][1] > points[found[-1]][1]:
            found.append(index)
    return found


@dataclass(frozen=True, slots=True)
class _Dot:
    """A side in a picture of success against cost."""

    name: str
    x: float
    y: float
    low: float
    high: float
    front: bool
    about: str


def _sides(site: Site, names: Sequence[str]) -> list[str]:
    """RUN:PHASE as it is, and all phases of RUN that evaluate."""
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


def _page(sides: Sequence[Side], cost: str) -> dict[str, Any]:
    cells = {side.name: standings(side) for side in sides}
    worlds = list(dict.fromkeys(world for of in cells.values() for world in of))
    every = tiles(sides)
    return {
        "title": "evaluations",
        "choices": (),
        "sides": sides,
        "worlds": worlds,
        "cells": cells,
        "pictures": [(world, *_picture(world, cells, cost)) for world in worlds[:12]],
        "cost": cost,
        "costs": COSTS,
        "tiles": every[:TILES],
        "tiles_left": max(0, len(every) - TILES),
        "clusters": clusters(sides),
        "failures": [sum(not e.outcome.solved for e in side.episodes) for side in sides],
        "size": (WIDTH, HEIGHT, LEFT, BOTTOM),
    }


def _round(most: float) -> float:
    """The end of an axis of four even parts."""
    unit = 4 * 10.0 ** math.floor(math.log10((most or 1.0) / 4))
    return next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= most)


def _picture(
    world: str, cells: Mapping[str, Mapping[str, Standing]], cost: str
) -> tuple[list[_Dot], list[tuple[float, str]]]:
    """The sides in one environment, and the marks of the axis of costs.

    A side whose cost is not known is left out.
    """
    known = [(name, of[world]) for name, of in cells.items() if world in of]
    here: list[tuple[str, float, Interval]] = []
    for name, found in known:
        spent: float | None = getattr(found, cost)
        if found.success is not None and spent is not None:
            here.append((name, spent, found.success))
    if not here:
        return [], []
    dearest = _round(max(spent for _, spent, _ in here))
    front = set(pareto([(spent, rate.mean) for _, spent, rate in here]))

    def across(spent: float) -> float:
        return LEFT + (WIDTH - LEFT - 12) * spent / dearest

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
        for i, (name, spent, rate) in enumerate(here)
    ]
    marks = [(round(across(dearest * i / 4), 1), figure(dearest * i / 4)) for i in range(5)]
    return dots, marks
