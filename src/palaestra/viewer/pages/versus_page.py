"""Two phases on the same tasks: `/versus?a=RUN:PHASE&b=RUN:PHASE`. Differences are b minus a."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaestra.core.errors import PalaestraError
from palaestra.evaluation.reports.run_diff import Diff, Flip, diff
from palaestra.store.queries import parse_key
from palaestra.viewer.comparable_runs import choices
from palaestra.viewer.comparison import ComparedPhase, clusters, compared_phase, failed, tiles
from palaestra.viewer.site import Site, episode_url

FLIPS = 200  # shown of each kind
TILES = 1000  # shown
WHOLE = 600  # episodes of a phase up to which they are read whole, for measures of their turns
BY_HEADER = ("progress", "turns", "sampled_tokens", "prompt_tokens", "seconds")
"""Measures that only need the header of an episode."""


def routes(site: Site) -> list[Route]:
    """Return the route of this page."""

    def page(request: Request) -> Response:
        names = [request.query_params.get(name, "").strip() for name in "ab"]
        values: dict[str, Any] = {"title": "two on the same tasks", "a": names[0], "b": names[1]}
        if not all(names):
            return site.page("versus.html", **values, phases=(), choices=choices(site))
        phases = (compared_phase(site, names[0]), compared_phase(site, names[1]))
        found, reason = _compared(site, phases)
        every = tiles(phases)
        return site.page(
            "versus.html",
            **values,
            choices=(),
            phases=phases,
            found=found,
            reason=reason,
            gained=[_flip(flip, phases) for flip in found.gained[:FLIPS]] if found else [],
            lost=[_flip(flip, phases) for flip in found.lost[:FLIPS]] if found else [],
            flips_left=_left(found.gained) + _left(found.lost) if found else 0,
            tiles=every[:TILES],
            tiles_left=max(0, len(every) - TILES),
            clusters=clusters(phases),
            failures=[len(failed(of)) for of in phases],
        )

    return [Route("/versus", page)]


def _compared(site: Site, phases: tuple[ComparedPhase, ComparedPhase]) -> tuple[Diff | None, str]:
    """Return the comparison, or why there is none."""
    whole = all(len(of.episodes) <= WHOLE for of in phases)
    read = []
    for compared in phases:
        if whole:
            with site.run(compared.run) as opened:
                database = opened.database
                read.append([e for phase in compared.phases for e in database.episodes(phase)])
        else:
            read.append(list(compared.episodes))
    try:
        found = diff(read[0], read[1], (phases[0].name, phases[1].name))
    except PalaestraError as error:
        return None, str(error)
    if not whole:
        for name in found.measures.keys() - set(BY_HEADER):
            del found.measures[name]
    return found, ""


def _flip(flip: Flip, phases: tuple[ComparedPhase, ComparedPhase]) -> dict[str, Any]:
    keys = [parse_key(name) for name in flip.episodes]
    return {
        "task": flip.task,
        "scores": flip.scores,
        "links": [
            (str(key), episode_url(compared.run, key)) if key else ("", "")
            for compared, key in zip(phases, keys, strict=True)
        ],
    }


def _left(flips: tuple[Flip, ...]) -> int:
    return max(0, len(flips) - FLIPS)
