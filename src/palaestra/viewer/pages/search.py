"""Search over all episodes of all runs.

An answer is bounded in time. While runs have not been looked through, or their index of words is
still being made, they are named, what is counted is said to be partial, and the page goes on by
itself: how far the indexes are is asked often, as that costs nothing, and the search is done again
when there is more to find.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from palaestra.core.errors import InputError
from palaestra.core.visible import visible
from palaestra.store.notes import labelled
from palaestra.store.queries import Filter, Queries
from palaestra.store.run import RunFolder, RunRecord
from palaestra.store.search import Extent, TextIndex, passages
from palaestra.viewer.indexing import Indexer
from palaestra.viewer.pages.episodes import outcome_kind
from palaestra.viewer.question import Question, parse
from palaestra.viewer.site import Site, episode_url

PAGE = 30  # episodes shown at once
PATIENCE = 1.0  # seconds to look through runs
INDEXING = 0.4  # seconds to wait for indexes
QUOTING = 0.3  # seconds to find the passages that are shown
LONGEST = 2000  # events of an episode that is read for its passage
AROUND = 80  # characters shown on both sides of a word


@dataclass(slots=True)
class Looked:
    """What a search has come to."""

    found: list[tuple[RunRecord, array[int]]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # runs for which there was no time
    indexing: list[tuple[str, Extent | None]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # why runs could not be searched

    @property
    def partial(self) -> bool:
        """Whether there may be more than was found."""
        return bool(self.left or self.indexing)

    @property
    def total(self) -> int:
        return sum(len(ids) for _, ids in self.found)


def routes(site: Site) -> list[Route]:
    """The routes of this page."""
    indexer = Indexer()

    def page(request: Request) -> HTMLResponse:
        text = _asked(request)
        digits = request.query_params.get("page", "1")
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 1
        question = parse(text)
        looked = Looked() if question.empty else _look(site, indexer, question)
        start = max(0, number - 1) * PAGE
        return site.page(
            "search.html",
            title=f"search: {text}" if text else "search",
            text=text,
            question=question,
            looked=looked,
            hits=_hits(looked, question, start),
            page=max(1, number),
            pages=max(1, -(-looked.total // PAGE)),
        )

    def progress(request: Request) -> HTMLResponse:
        """How far the indexes are that a search waits for, as a fragment of its page."""
        question = parse(_asked(request))
        indexing = _indexing(indexer, _chosen(site, question), 0.0)[0] if question.words else []
        return site.page("indexing.html", indexing=indexing)

    return [Route("/search", page), Route("/search/progress", progress)]


def _asked(request: Request) -> str:
    return request.query_params.get("q", "").strip()[:1000]


def _chosen(site: Site, question: Question) -> list[RunRecord]:
    """The runs that are asked of."""
    return [run for run in site.records() if question.run.lower() in run.name.lower()]


def _indexing(
    indexer: Indexer, records: list[RunRecord], patience: float
) -> tuple[list[tuple[str, Extent | None]], list[str]]:
    """Whose index is not whole after `patience` seconds, with how far it is; and what failed."""
    extents = indexer.extents([record.path for record in records], patience)
    going, failed = [], []
    for record in records:
        extent = extents[record.path]
        if isinstance(extent, str):
            failed.append(f"{record.name}: {extent}")
        elif extent is None or not extent.whole:
            going.append((record.name, extent))
    return going, failed


def _look(site: Site, indexer: Indexer, question: Question) -> Looked:
    end = time.monotonic() + PATIENCE
    looked = Looked()
    records = _chosen(site, question)
    if question.words:
        looked.indexing, looked.failed = _indexing(indexer, records, INDEXING)
    for record in records:
        left = end - time.monotonic()
        if left <= 0:
            looked.left.append(record.name)
            continue
        try:
            ids = _within(site, record, question, left)
        except InputError as error:
            if not any(reason.startswith(f"{record.name}: ") for reason in looked.failed):
                looked.failed.append(f"{record.name}: {error}")
            continue
        if ids is None:
            looked.left.append(record.name)
        elif len(ids):
            looked.found.append((record, ids))
    return looked


def _within(site: Site, record: RunRecord, question: Question, seconds: float) -> array[int] | None:
    """The episodes of one run; None where it takes longer: then there is an answer later."""
    filter = question.filter
    if question.label:
        name, equals, value = question.label.partition("=")
        given = labelled(record.path)
        keys = [k for k, of in given.items() if name in of and (not equals or of[name] == value)]
        if not keys:
            return array("q")
        filter = replace(filter, keys=frozenset(keys))
    found = site.soon(record.path, ("all", filter), partial(_all, record.path, filter), seconds)
    if found is None or not question.words:
        return found
    having = set(TextIndex(record.path).find(question.words))
    return array("q", (id for id in found if id in having))


def _all(path: Path, filter: Filter) -> array[int]:
    """All episodes of a run that a filter chooses, however long that takes."""
    with RunFolder.read(path) as opened:
        return Queries(opened.database).ids(filter).ids


def _hits(looked: Looked, question: Question, start: int) -> list[dict[str, Any]]:
    """The episodes of a page of results, each with a passage where there is time to find it."""
    end = time.monotonic() + QUOTING
    hits: list[dict[str, Any]] = []
    skipped = start
    for record, ids in list(looked.found):
        if skipped >= len(ids):
            skipped -= len(ids)
            continue
        chosen = ids[skipped : skipped + PAGE - len(hits)].tolist()
        try:
            hits += _shown(record, chosen, question, end)
        except InputError as error:
            looked.found.remove((record, ids))
            looked.failed.append(f"{record.name}: {error}")
            continue
        skipped = 0
        if len(hits) >= PAGE:
            break
    return hits


def _shown(
    record: RunRecord, ids: Sequence[int], question: Question, end: float
) -> list[dict[str, Any]]:
    """Episodes of one run as they are listed; passages are looked for until `end`."""
    hits: list[dict[str, Any]] = []
    with RunFolder.read(record.path) as opened:
        queries = Queries(opened.database)
        for row in queries.rows(ids):
            url, summary = episode_url(record.name, row.summary.key), row.summary
            short = time.monotonic() < end and queries.events(summary.key) <= LONGEST
            said = _passage(opened, row.summary.key, question) if short else None
            if said and said[0] is not None:
                url += f"?turn={said[0] + 1}#turn-{said[0] + 1}"
            hits.append(
                {
                    "run": record.name,
                    "summary": summary,
                    "url": url,
                    "kind": outcome_kind(summary.outcome),
                    "passage": said[1] if said else None,
                    "turn": said[0] + 1 if said and said[0] is not None else None,
                }
            )
    return hits


def _passage(opened: RunFolder, key: Any, question: Question) -> tuple[int | None, Markup] | None:
    """The first text of an episode that holds a word of the question: its step, and the words."""
    if not question.words:
        return None
    episode = opened.database.episode(key)
    pattern = _pattern(question.words)
    if episode is None or pattern is None:
        return None
    for step, text in passages(episode):
        match = pattern.search(text)
        if match is not None:
            return step, _marked(text, match, pattern)
    return None


def _pattern(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """Any of the words, as the index reads them: letters and digits, whatever lies between."""
    found = []
    for word in words:
        tokens = re.findall(r"[^\W_]+", word)
        if tokens:
            end = "" if word.endswith("*") else r"(?![^\W_])"
            found.append(r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, tokens)) + end)
    return re.compile("|".join(found), re.I) if found else None


def _marked(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> Markup:
    """The surroundings of a match, with the words marked."""
    first, last = max(0, match.start() - AROUND), match.end() + AROUND
    part = text[first:last]
    parts, at = [Markup("…") if first else Markup()], 0
    for found in pattern.finditer(part):
        parts.append(escape(visible(part[at : found.start()])))
        parts.append(Markup("<mark>{}</mark>").format(visible(found[0])))
        at = found.end()
    parts += [escape(visible(part[at:])), Markup("…") if last < len(text) else Markup()]
    return Markup("").join(parts)
