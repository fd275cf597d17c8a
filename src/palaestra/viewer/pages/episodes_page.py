"""The episodes of a run: a table of any length to filter, sort and scroll.

The ids of all episodes that match a filter are found once and cached; a row's contents are read
when it is shown. So any part of a table of 100,000 rows loads as fast as its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from palaestra.core.episode import Key, PlayerResult
from palaestra.core.outcome import Limit, Outcome, Owner, Status
from palaestra.evaluation.statistics.player_results import has_success, returns_line
from palaestra.runtime.visible_text import visible
from palaestra.store.liveness import worker
from palaestra.store.notes import labelled
from palaestra.store.queries import SORTS, Filter, Found, Queries, Row
from palaestra.store.recorded_players import players_by_key
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.formatting import cut, figure, seconds
from palaestra.viewer.site import Site, episode_url

PAGE = 100  # rows of a page without scripts
MOST = 500  # rows per request
PATIENCE = 2.0  # seconds to search for rows
FIELDS = ("phase", "outcome", "solved", "env", "task", "text", "label", "sort")
COLUMNS = (
    ("episode", "episode"),
    ("task", "task"),
    ("environment", "environment"),
    ("outcome", "outcome"),
    ("reward", "reward"),
    ("turns", "turns"),
    ("tokens", "tokens"),
    (None, "time"),
    (None, "labels"),
)
OUTCOMES = (
    *(str(status) for status in Status),
    *(f"truncated({limit})" for limit in Limit),
)


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""

    def page(request: Request) -> HTMLResponse:
        asked = _asked(request)
        number = _whole(request, "page", 1, least=1)
        with site.run(request.path_params["name"]) as opened:
            found, labels = _found(site, opened, asked)
            start = (number - 1) * PAGE
            rows = Queries(opened.database).rows(found.ids[start : start + PAGE].tolist())
            return site.page(
                "episodes.html",
                title=f"episodes of {opened.record.name}",
                run=opened.record,
                live=worker(opened.path),
                asked=asked,
                query={name: value for name, value in asked.items() if value},
                phases=_phases(Queries(opened.database).phases()),
                outcomes=OUTCOMES,
                columns=COLUMNS,
                rows=_listed(opened, rows, labels),
                total=len(found.ids),
                complete=found.complete,
                page=number,
                pages=max(1, -(-len(found.ids) // PAGE)),
                start=start,
            )

    def part(request: Request) -> JSONResponse:
        start = _whole(request, "start", 0)
        count = min(MOST, _whole(request, "count", PAGE))
        with site.run(request.path_params["name"]) as opened:
            found, labels = _found(site, opened, _asked(request))
            rows = Queries(opened.database).rows(found.ids[start : start + count].tolist())
            return JSONResponse(
                {
                    "total": len(found.ids),
                    "complete": found.complete,
                    "start": start,
                    "rows": _listed(opened, rows, labels),
                }
            )

    return [
        Route("/run/{name}/episodes", page),
        Route("/run/{name}/episodes.json", part),
    ]


def _asked(request: Request) -> dict[str, str]:
    asked = {name: request.query_params.get(name, "").strip() for name in FIELDS}
    if asked["sort"].removeprefix("-") not in SORTS:
        asked["sort"] = ""
    return asked


def _whole(request: Request, name: str, otherwise: int, least: int = 0) -> int:
    """Return a number from the URL, at least `least`; raise HTTPException if it is invalid."""
    text = request.query_params.get(name, str(otherwise))
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise HTTPException(400, f"{name}={text} is invalid; give a number of {least} or more.")
    return int(text)


def _found(
    site: Site, opened: RunFolder, asked: Mapping[str, str]
) -> tuple[Found, dict[Key, dict[str, str]]]:
    """Return the matching episodes, and the labels of all episodes."""
    labels = labelled(opened.path)
    name, equals, value = asked["label"].partition("=")
    keys = None
    if name:
        values = {key: of[name.strip()] for key, of in labels.items() if name.strip() in of}
        keys = frozenset(k for k, v in values.items() if not equals or v == value.strip())
    filter = Filter(
        phase=asked["phase"],
        outcome=asked["outcome"],
        solved={"yes": True, "no": False}.get(asked["solved"]),
        environment=asked["env"],
        task=asked["task"],
        text=asked["text"],
        keys=keys,
    )
    sort = asked["sort"] or "finished"
    found = site.cached(
        opened.path,
        ("ids", filter, sort),
        lambda: Queries(opened.database).ids(filter, sort, seconds=PATIENCE),
    )
    return found, labels


def _listed(
    opened: RunFolder, rows: Sequence[Row], labels: Mapping[Key, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return rows in the form that the page and the script use."""
    players = players_by_key(opened.database, [row.summary.key for row in rows])
    return [
        _cells(opened.record.name, row, labels, players.get(row.summary.key, {})) for row in rows
    ]


def _cells(
    run: str,
    row: Row,
    labels: Mapping[Key, Mapping[str, str]],
    players: Mapping[str, PlayerResult],
) -> dict[str, Any]:
    """Return a row; of several players it has the return of each."""
    summary = row.summary
    game = bool(players) and not has_success(summary.environment, players)
    ended = cut(returns_line(players), 80) if game else visible(str(summary.outcome))
    given = labels.get(summary.key, {})
    return {
        "url": episode_url(run, summary.key),
        "cells": [
            visible(str(summary.key)),
            cut(summary.task, 80),
            cut(summary.environment, 60),
            ended,
            figure(summary.reward) if summary.outcome.scored and not players else "–",
            str(summary.turns),
            str(summary.sampled_tokens),
            seconds(row.seconds),
            cut(", ".join(k if v == "yes" else f"{k}={v}" for k, v in given.items()), 60),
        ],
        "kind": "none" if game else outcome_kind(summary.outcome),
    }


def outcome_kind(outcome: Outcome) -> str:
    """Return the colour class of an outcome: good, bad, cut or none."""
    if not outcome.scored:
        return "none"
    if outcome.status is Status.ERROR:
        return "bad" if outcome.owner is Owner.AGENT else "none"
    return {"success": "good", "failure": "bad", "truncated": "cut"}[outcome.status]


def _phases(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    """Return the choices of phases: each phase, and each common prefix before its phases."""
    found: dict[str, int] = {}
    starts: dict[str, int] = {}
    for phase in counts:
        start = phase.partition("/")[0]
        starts[start] = starts.get(start, 0) + 1
    for phase, count in counts.items():
        start, slash, _ = phase.partition("/")
        if slash and starts[start] > 1 and start not in found:
            found[start] = sum(n for p, n in counts.items() if p.partition("/")[0] == start)
        found[phase] = count
    return list(found.items())
