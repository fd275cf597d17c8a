"""Meta-paths: shapes of subgraphs, each with the words of a task.

    fact        page - fact             the value of another label, on the page with that value
    reference   page - link - page - fact
    compare     page - fact, page - fact    which of two has the larger number
    row         page - row - cell       a value of the row with that value
    count       page - rows             how many rows have a value
    search      page - search - row - cell
    open        page                    leave it open

A sample is a candidate: whether it is a task is decided by `task_filters.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from palaestra.environments.families.page_graph.linked_pages import Fact, Page, PageGraph, kind_of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task on a graph, as it was sampled."""

    meta_path: str
    goal: str
    stops: tuple[str, ...]  # addresses of pages to see, in this order; the last shows the answer
    answer: Any = None  # None: the last page must be open in the end
    asked: tuple[str, ...] = ()  # what is asked for; equal for the same question
    keys: tuple[tuple[str, Fact], ...] = ()  # kinds of pages, with the facts by which one is known
    titles: tuple[str, ...] = ()  # by which pages are known


T = TypeVar("T")
Sampler = Callable[[PageGraph, random.Random], Candidate | None]


def sampled(graph: PageGraph, rng: random.Random) -> Candidate | None:
    """Return a candidate of a meta-path that is drawn; None if the draw finds nothing there."""
    name = rng.choice(sorted(META_PATHS))
    return META_PATHS[name](graph, rng)


def _fact(graph: PageGraph, rng: random.Random) -> Candidate | None:
    page = _drawn(rng, [one for one in graph.pages.values() if len(one.facts) > 1])
    if page is None:
        return None
    key, asked = rng.sample(page.facts, 2)
    goal = f"{_known(page, key)} What is its '{asked.label}'?"
    return _about("fact", page, key, goal, asked, (page.address,))


def _reference(graph: PageGraph, rng: random.Random) -> Candidate | None:
    pairs = [
        (page, fact, graph.pages[fact.link])
        for page in graph.pages.values()
        for fact in page.facts
        if fact.link in graph.pages and graph.pages[fact.link].facts
    ]
    found = _drawn(rng, pairs)
    if found is None:
        return None
    page, through, other = found
    keys = [fact for fact in page.facts if fact != through]
    if not keys:
        return None
    key, asked = rng.choice(keys), rng.choice(other.facts)
    goal = (
        f"{_known(page, key)} Follow the link of its '{through.label}'. "
        f"What is the '{asked.label}' there?"
    )
    return _about("reference", page, key, goal, asked, (page.address, other.address))


def _compare(graph: PageGraph, rng: random.Random) -> Candidate | None:
    groups = [pages for pages in graph.kinds().values() if len(pages) > 1 and pages[0].facts]
    pages = _drawn(rng, groups)
    if pages is None:
        return None
    first, second = rng.sample(pages, 2)
    labels = [fact.label for fact in first.facts if fact.label.casefold() != "id"]
    shared = [one for one in labels if None not in (first.value(one), second.value(one))]
    numbers = [one for one in shared if _number(first, one) != _number(second, one)]
    names = [one for one in shared if one not in numbers and first.value(one) != second.value(one)]
    if not numbers or not names:
        return None
    label, name = rng.choice(numbers), rng.choice(names)
    one, other = (Fact(name, page.value(name) or "") for page in (first, second))
    larger = one if _number(first, label) > _number(second, label) else other
    host = urlsplit(first.address).netloc
    goal = (
        f"On {host} there are pages '{first.title}'. Of those whose '{name}' is '{one.value}' and "
        f"'{other.value}', which has the larger '{label}'? Answer with its '{name}'."
    )
    kind = kind_of(first.address)
    return Candidate(
        "compare", goal, (first.address, second.address), larger.value,
        ("larger", label, *sorted((one.value, other.value))), ((kind, one), (kind, other)),
    )  # fmt: skip


def _row(graph: PageGraph, rng: random.Random) -> Candidate | None:
    page = _drawn(rng, [one for one in graph.pages.values() if any(map(_asks, one.rows))])
    if page is None:
        return None
    row = rng.choice([one for one in page.rows if _asks(one)])
    key, asked = rng.sample(row, 2)
    goal = f"{_titled(page)} {_cell(asked, key)}"
    return _of_rows("row", page, page.rows, key, goal, asked, (page.address,))


def _count(graph: PageGraph, rng: random.Random) -> Candidate | None:
    page = _drawn(rng, [one for one in graph.pages.values() if len(one.rows) > 2])
    if page is None or not (row := rng.choice(page.rows)):
        return None
    asked = rng.choice(row)
    number = sum(
        asked.value in [f.value for f in one if f.label == asked.label] for one in page.rows
    )
    goal = f"{_titled(page)} In how many rows of its table is '{asked.label}' '{asked.value}'?"
    question = ("count", page.address, asked.label, asked.value)
    return Candidate("count", goal, (page.address,), number, question, titles=(page.title,))


def _search(graph: PageGraph, rng: random.Random) -> Candidate | None:
    found = _drawn(
        rng,
        [
            (address, edge)
            for address, edges in graph.edges.items()
            for edge in edges
            if edge.kind == "search" and any(map(_asks, graph.pages[edge.target].rows))
        ],
    )
    if found is None:
        return None
    address, edge = found
    page, result = graph.pages[address], graph.pages[edge.target]
    row = rng.choice([one for one in result.rows if _asks(one)])
    key, asked = rng.sample(row, 2)
    typed = edge.gestures[0]
    goal = f"{_titled(page)} Fill in its form as `{typed}` says, and send it. {_cell(asked, key)}"
    stops = (address, edge.target)
    return _of_rows("search", page, result.rows, key, goal, asked, stops)


def _open(graph: PageGraph, rng: random.Random) -> Candidate | None:
    page = _drawn(rng, [one for one in graph.pages.values() if one.facts])
    if page is None:
        return None
    key = rng.choice(page.facts)
    goal = f"{_known(page, key)} Open it, and leave it open."
    question = ("open", page.address)
    keys = ((kind_of(page.address), key),)
    return Candidate("open", goal, (page.address,), None, question, keys)


META_PATHS: Mapping[str, Sampler] = {
    "fact": _fact, "reference": _reference, "compare": _compare, "row": _row, "count": _count,
    "search": _search, "open": _open,
}  # fmt: skip


# ── details ──────────────────────────────────────────────────────────────────


def _about(
    name: str, page: Page, key: Fact, goal: str, asked: Fact, stops: tuple[str, ...]
) -> Candidate:
    question = (stops[-1], asked.label)
    return Candidate(name, goal, stops, asked.value, question, ((kind_of(page.address), key),))


def _of_rows(
    name: str,
    page: Page,
    rows: Sequence[tuple[Fact, ...]],
    key: Fact,
    goal: str,
    asked: Fact,
    stops: tuple[str, ...],
) -> Candidate | None:
    """Return a candidate about the row with a value; None: it has the label twice, or others do."""
    same = [row for row in rows if _plain(key) in map(_plain, row)]
    if len(same) != 1 or [fact.label for fact in same[0]].count(asked.label) != 1:
        return None
    question = (stops[-1], asked.label, key.value)
    return Candidate(name, goal, stops, asked.value, question, titles=(page.title,))


def _plain(fact: Fact) -> tuple[str, str]:
    return fact.label, fact.value


def _asks(row: Sequence[Fact]) -> bool:
    return len(row) > 1


def _known(page: Page, key: Fact) -> str:
    host = urlsplit(page.address).netloc
    return f"On {host} there is a page '{page.title}' whose '{key.label}' is '{key.value}'."


def _cell(asked: Fact, key: Fact) -> str:
    return f"What is the '{asked.label}' of the row whose '{key.label}' is '{key.value}'?"


def _titled(page: Page) -> str:
    return f"On {urlsplit(page.address).netloc} there is a page '{page.title}'."


def _number(page: Page, label: str) -> float:
    """Return a fact as a number; 0 where it is none."""
    try:
        return float((page.value(label) or "").replace(",", ""))
    except ValueError:
        return 0.0


def _drawn(rng: random.Random, among: Sequence[T]) -> T | None:
    return rng.choice(among) if among else None
