"""Search over all episodes of all runs.

A response is bounded in time. Runs that were not searched yet, or whose index is still being
built, are named; counts are marked as partial, and the page updates by itself: it polls the
progress of the indexes, which is cheap, and repeats the search when there is more to find.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from palaestra.core.episode import PlayerResult
from palaestra.core.errors import InputError
from palaestra.evaluation.statistics.player_results import has_success, returns_line
from palaestra.runtime.visible_text import visible
from palaestra.store.header import EpisodeSummary
from palaestra.store.notes import labelled
from palaestra.store.queries import Filter, Queries
from palaestra.store.recorded_players import players_by_key
from palaestra.store.run_folder import RunFolder, RunRecord
from palaestra.store.search_index import Extent, TextIndex, passages
from palaestra.viewer.indexing import Indexer
from palaestra.viewer.pages.episodes_page import outcome_kind
from palaestra.viewer.search_query import SearchQuery, parse
from palaestra.viewer.site import Site, episode_url
from palaestra.viewer.texts import line

PAGE = 30  # episodes shown at once
PATIENCE = 1.0  # seconds to search runs
INDEXING = 0.4  # seconds to wait for indexes
QUOTING = 0.3  # seconds to find the shown passages
LONGEST = 2000  # events of an episode up to which it is read for its passage
AROUND = 80  # characters shown on both sides of a word


@dataclass(slots=True)
class SearchResult:
    """The state of a search."""

    found: list[tuple[RunRecord, array[int]]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # runs that were not searched yet
    indexing: list[tuple[str, Extent | None]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # why runs could not be searched

    @property
    def partial(self) -> bool:
        """Whether there may be more results."""
        return bool(self.left or self.indexing)

    @property
    def total(self) -> int:
        return sum(len(ids) for _, ids in self.found)


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""
    indexer = Indexer()

    def page(request: Request) -> HTMLResponse:
        text = _asked(request)
        digits = request.query_params.get("page", "1")
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 1
        query = parse(text)
        searched = SearchResult() if query.empty else _search(site, indexer, query)
        start = max(0, number - 1) * PAGE
        return site.page(
            "search.html",
            title=f"search: {text}" if text else "search",
            text=text,
            query=query,
            searched=searched,
            hits=_hits(searched, query, start),
            page=max(1, number),
            pages=max(1, -(-searched.total // PAGE)),
        )

    def progress(request: Request) -> HTMLResponse:
        """Render the progress of the indexes that a search waits for, as a fragment of its page."""
        query = parse(_asked(request))
        indexing = _indexing(indexer, _chosen(site, query), 0.0)[0] if query.words else []
        return site.page("indexing.html", indexing=indexing)

    return [Route("/search", page), Route("/search/progress", progress)]


def _asked(request: Request) -> str:
    return request.query_params.get("q", "").strip()[:1000]


def _chosen(site: Site, query: SearchQuery) -> list[RunRecord]:
    """Return the runs to search."""
    return [run for run in site.records() if query.run.lower() in run.name.lower()]


def _indexing(
    indexer: Indexer, records: list[RunRecord], patience: float
) -> tuple[list[tuple[str, Extent | None]], list[str]]:
    """Return the incomplete indexes after `patience` seconds with their extents, and failures."""
    extents = indexer.extents([record.path for record in records], patience)
    going, failed = [], []
    for record in records:
        extent = extents[record.path]
        if isinstance(extent, str):
            failed.append(f"{record.name}: {extent}")
        elif extent is None or not extent.whole:
            going.append((record.name, extent))
    return going, failed


def _search(site: Site, indexer: Indexer, query: SearchQuery) -> SearchResult:
    end = time.monotonic() + PATIENCE
    searched = SearchResult()
    records = _chosen(site, query)
    if query.words:
        searched.indexing, searched.failed = _indexing(indexer, records, INDEXING)
    for record in records:
        left = end - time.monotonic()
        if left <= 0:
            searched.left.append(record.name)
            continue
        try:
            ids = _within(site, record, query, left)
        except InputError as error:
            if not any(reason.startswith(f"{record.name}: ") for reason in searched.failed):
                searched.failed.append(f"{record.name}: {error}")
            continue
        if ids is None:
            searched.left.append(record.name)
        elif len(ids):
            searched.found.append((record, ids))
    return searched


def _within(site: Site, record: RunRecord, query: SearchQuery, seconds: float) -> array[int] | None:
    """Return the matching episodes of one run; None if the search takes longer."""
    filter = query.filter
    if query.label:
        name, equals, value = query.label.partition("=")
        given = labelled(record.path)
        keys = [k for k, of in given.items() if name in of and (not equals or of[name] == value)]
        if not keys:
            return array("q")
        filter = replace(filter, keys=frozenset(keys))
    found = site.soon(record.path, ("all", filter), partial(_all, record.path, filter), seconds)
    if found is None or not query.words:
        return found
    matching = set(TextIndex(record.path).find(query.words))
    return array("q", (id for id in found if id in matching))


def _all(path: Path, filter: Filter) -> array[int]:
    """Return all episodes of a run that match a filter, without a time limit."""
    with RunFolder.read(path) as opened:
        return Queries(opened.database).ids(filter).ids


def _hits(searched: SearchResult, query: SearchQuery, start: int) -> list[dict[str, Any]]:
    """Return the episodes of a page of results, each with a passage if time allows."""
    end = time.monotonic() + QUOTING
    hits: list[dict[str, Any]] = []
    skipped = start
    for record, ids in list(searched.found):
        if skipped >= len(ids):
            skipped -= len(ids)
            continue
        chosen = ids[skipped : skipped + PAGE - len(hits)].tolist()
        try:
            hits += _shown(record, chosen, query, end)
        except InputError as error:
            searched.found.remove((record, ids))
            searched.failed.append(f"{record.name}: {error}")
            continue
        skipped = 0
        if len(hits) >= PAGE:
            break
    return hits


def _shown(
    record: RunRecord, ids: Sequence[int], query: SearchQuery, end: float
) -> list[dict[str, Any]]:
    """Return episodes of one run as list entries; passages are searched until `end`."""
    hits: list[dict[str, Any]] = []
    with RunFolder.read(record.path) as opened:
        queries = Queries(opened.database)
        rows = queries.rows(ids)
        players = players_by_key(opened.database, [row.summary.key for row in rows])
        for row in rows:
            url, summary = episode_url(record.name, row.summary.key), row.summary
            short = time.monotonic() < end and queries.events(summary.key) <= LONGEST
            quoted = _passage(opened, row.summary.key, query) if short else None
            if quoted and quoted[0] is not None:
                url += f"?turn={quoted[0] + 1}#turn-{quoted[0] + 1}"
            hits.append(
                {
                    "run": record.name,
                    "summary": summary,
                    "url": url,
                    **_ending(summary, players.get(summary.key, {})),
                    "passage": quoted[1] if quoted else None,
                    "turn": quoted[0] + 1 if quoted and quoted[0] is not None else None,
                }
            )
    return hits


def _ending(summary: EpisodeSummary, players: Mapping[str, PlayerResult]) -> dict[str, Any]:
    """Return how an episode ended, as text with a colour: the returns of a game's players."""
    if players and not has_success(summary.environment, players):
        return {"ending": line(returns_line(players), 200), "kind": "none", "reward": None}
    return {
        "ending": str(summary.outcome),
        "kind": outcome_kind(summary.outcome),
        "reward": summary.reward,
    }


def _passage(opened: RunFolder, key: Any, query: SearchQuery) -> tuple[int | None, Markup] | None:
    """Return the first text of an episode that contains a word of the search, with its step."""
    if not query.words:
        return None
    episode = opened.database.episode(key)
    pattern = _pattern(query.words)
    if episode is None or pattern is None:
        return None
    for step, text in passages(episode):
        match = pattern.search(text)
        if match is not None:
            return step, _marked(text, match, pattern)
    return None


def _pattern(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """Compile a pattern of any of the words, tokenised as in the index: letters and digits."""
    found = []
    for word in words:
        tokens = re.findall(r"[^\W_]+", word)
        if tokens:
            end = "" if word.endswith("*") else r"(?![^\W_])"
            found.append(r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, tokens)) + end)
    return re.compile("|".join(found), re.I) if found else None


def _marked(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> Markup:
    """Return the context of a match, with the words marked."""
    first, last = max(0, match.start() - AROUND), match.end() + AROUND
    part = text[first:last]
    parts, at = [Markup("…") if first else Markup()], 0
    for found in pattern.finditer(part):
        parts.append(escape(visible(part[at : found.start()])))
        parts.append(Markup("<mark>{}</mark>").format(visible(found[0])))
        at = found.end()
    parts += [escape(visible(part[at:])), Markup("…") if last < len(text) else Markup()]
    return Markup("").join(parts)
