"""Two phases on the same tasks: `/versus?a=RUN:PHASE&b=RUN:PHASE`. Differences are b minus a."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaestra.core.errors import PalaestraError
from palaestra.evaluation.diff import Diff, Flip, diff
from palaestra.store.queries import parse_key
from palaestra.viewer.choices import choices
from palaestra.viewer.sides import Side, clusters, side_of, tiles
from palaestra.viewer.site import Site, episode_url

FLIPS = 200  # shown of each kind
TILES = 1000  # shown
WHOLE = 600  # episodes of a side up to which they are read whole, for measures of their turns
BY_HEADER = ("progress", "turns", "sampled_tokens", "prompt_tokens", "seconds")
"""Measures that the header of an episode tells."""


def routes(site: Site) -> list[Route]:
    """The route of this page."""

    def page(request: Request) -> Response:
        names = [request.query_params.get(name, "").strip() for name in "ab"]
        values: dict[str, Any] = {"title": "two on the same tasks", "a": names[0], "b": names[1]}
        if not all(names):
            return site.page("versus.html", **values, sides=(), choices=choices(site))
        sides = (side_of(site, names[0]), side_of(site, names[1]))
        found, reason = _compared(site, sides)
        every = tiles(sides)
        return site.page(
            "versus.html",
            **values,
            choices=(),
            sides=sides,
            found=found,
            reason=reason,
            gained=[_flip(flip, sides) for flip in found.gained[:FLIPS]] if found else [],
            lost=[_flip(flip, sides) for flip in found.lost[:FLIPS]] if found else [],
            flips_left=_left(found.gained) + _left(found.lost) if found else 0,
            tiles=every[:TILES],
            tiles_left=max(0, len(every) - TILES),
            clusters=clusters(sides),
            failures=[sum(not e.outcome.solved for e in side.episodes) for side in sides],
        )

    return [Route("/versus", page)]


def _compared(site: Site, sides: tuple[Side, Side]) -> tuple[Diff | None, str]:
    """The comparison, or why there is none."""
    whole = all(len(side.episodes) <= WHOLE for side in sides)
    read = []
    for side in sides:
        if whole:
            with site.run(side.run) as opened:
                database = opened.database
                read.append([e for phase in side.phases for e in database.episodes(phase)])
        else:
            read.append(list(side.episodes))
    try:
        found = diff(read[0], read[1], (sides[0].name, sides[1].name))
    except PalaestraError as error:
        return None, str(error)
    if not whole:
        for name in found.measures.keys() - set(BY_HEADER):
            del found.measures[name]
    return found, ""


def _flip(flip: Flip, sides: tuple[Side, Side]) -> dict[str, Any]:
    keys = [parse_key(name) for name in flip.episodes]
    return {
        "task": flip.task,
        "scores": flip.scores,
        "links": [
            (str(key), episode_url(side.run, key)) if key else ("", "")
            for side, key in zip(sides, keys, strict=True)
        ],
    }


def _left(flips: tuple[Flip, ...]) -> int:
    return max(0, len(flips) - FLIPS)
