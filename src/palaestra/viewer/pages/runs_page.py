"""The first page: the runs and their results."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from palaestra.core.errors import InputError
from palaestra.store.liveness import mark, worker
from palaestra.store.queries import Queries
from palaestra.store.run_folder import RunFolder, RunRecord
from palaestra.viewer import facts
from palaestra.viewer.facts import About
from palaestra.viewer.run_result import Result, result
from palaestra.viewer.site import Site

PATIENCE = 0.2  # seconds for the numbers of all runs; the rest follows with the next update
SORTS = ("created", "run", "kind", "environment", "model", "episodes", "success", "tokens", "cost")


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a row; without numbers if they are not computed yet, or it cannot be read."""

    record: RunRecord
    live: bool
    about: About | None = None
    episodes: int | None = None
    result: Result | None = None
    refused: str = ""  # why it cannot be read


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""

    def page(request: Request) -> HTMLResponse:
        asked = request.query_params
        wanted = {name: asked.get(name, "").strip() for name in ("q", "kind", "env", "sort")}
        rows = [row for row in _rows(site) if _chosen(row, wanted)]
        sort = wanted["sort"]
        if sort.removeprefix("-") in SORTS:
            rows = _sorted(rows, sort.removeprefix("-"), sort.startswith("-"))
        return site.page(
            "runs.html",
            title="runs",
            runs=rows,
            wanted=wanted,
            pending=any(row.about is None and not row.refused for row in rows),
            live=any(row.live for row in rows),
            sorts=SORTS,
        )

    def state(request: Request) -> JSONResponse:
        records = site.records()
        marks = [(record.name, mark(record.path)) for record in records]
        live = any(worker(record.path) is not None for record in records)
        return JSONResponse({"live": live, "version": f"{hash(tuple(marks)):x}"})

    return [Route("/", page), Route("/live.json", state)]


def _rows(site: Site) -> list[Shown]:
    end = time.monotonic() + PATIENCE
    rows = []
    for record in site.records():
        live, read = worker(record.path) is not None, partial(_read, record.path)
        try:
            row = site.soon(record.path, "row", read, end - time.monotonic())
        except InputError as error:
            rows.append(Shown(record, live, refused=str(error)))
            continue
        rows.append(Shown(record, live, *row) if row else Shown(record, live))
    return rows


def _read(path: Path) -> tuple[About, int, Result | None]:
    """Return the facts about a run, its number of episodes, and its result."""
    with RunFolder.read(path) as opened:
        episodes = sum(Queries(opened.database).phases().values())
        return facts.about(opened.database), episodes, result(opened.database)


def _chosen(row: Shown, wanted: dict[str, str]) -> bool:
    about = row.about
    text = row.record.name if about is None else f"{row.record.name} {about.summary} {about.model}"
    if wanted["q"].lower() not in text.lower():
        return False
    if about is None:
        return not (wanted["kind"] and row.refused)
    kind = not wanted["kind"] or about.kind == wanted["kind"]
    return kind and wanted["env"].lower() in about.environment.lower()


def _sorted(rows: list[Shown], name: str, descending: bool) -> list[Shown]:
    """Sort by a column; runs without a value come last."""

    def value(row: Shown) -> Any:
        if name in ("created", "run"):
            return row.record.created if name == "created" else row.record.name
        if name == "episodes":
            return row.episodes
        if name == "success":
            return row.result.success if row.result else None
        return getattr(row.about, name) if row.about else None

    known = [row for row in rows if value(row) is not None]
    return sorted(known, key=value, reverse=descending) + [r for r in rows if value(r) is None]
