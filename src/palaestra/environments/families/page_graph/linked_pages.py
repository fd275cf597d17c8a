"""A graph of pages: what they say, and the gestures that lead from one to another.

Nodes are pages, with their elements that matter: facts (a label and its value) and rows of tables.
Edges are links and searches. Gestures name elements by words that fit no other element of the page,
so they can be written down before the page is open.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Fact:
    """A value with its label: a term and its definition, or a cell and its column."""

    label: str
    value: str
    link: str = ""  # where the value leads


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one page to another."""

    kind: Literal["link", "search"]
    target: str  # the address
    gestures: tuple[str, ...]  # lines; empty where no words name the element


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says."""

    address: str
    title: str  # its first heading, else the title of its document
    facts: tuple[Fact, ...] = ()  # terms and definitions: what the page is about
    rows: tuple[tuple[Fact, ...], ...] = ()  # of its tables, without the heads
    texts: frozenset[str] = frozenset()  # all that it says

    def value(self, label: str) -> str | None:
        """Return the value of a label that the page has once, else None."""
        found = [fact.value for fact in self.facts if fact.label == label]
        return found[0] if len(found) == 1 else None


@dataclass
class PageGraph:
    """Pages by address, and the edges that leave them."""

    start: str
    pages: dict[str, Page] = field(default_factory=dict)
    edges: dict[str, list[Edge]] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)  # addresses of what searches found
    unread: set[str] = field(default_factory=set)
    """Addresses to which links lead and that were not read."""

    def path(self, source: str, target: str) -> list[Edge] | None:
        """Return the shortest way by edges that can be used; None if there is none."""
        before: dict[str, tuple[str, Edge]] = {}
        queue, seen = deque([source]), {source}
        while queue:
            here = queue.popleft()
            if here == target:
                return _traced(before, source, target)
            for edge in self.edges.get(here, ()):
                if edge.gestures and edge.target in self.pages and edge.target not in seen:
                    seen.add(edge.target)
                    before[edge.target] = here, edge
                    queue.append(edge.target)
        return None

    def kinds(self) -> dict[str, list[Page]]:
        """Return the pages by their kind."""
        found: dict[str, list[Page]] = {}
        for page in self.pages.values():
            found.setdefault(kind_of(page.address), []).append(page)
        return found

    def is_complete(self, kind: str) -> bool:
        """Return whether every known page of a kind was read."""
        return all(kind_of(address) != kind for address in self.unread)


def kind_of(address: str) -> str:
    """Return what an address shares with those of pages about other things of its kind."""
    parts = urlsplit(address)
    path = re.sub(r"[^/]*\d[^/]*", "#", parts.path)
    names = sorted({part.partition("=")[0] for part in parts.query.split("&")} - {""})
    return f"{parts.netloc}{path}?{'&'.join(names)}"


def _traced(before: Mapping[str, tuple[str, Edge]], source: str, target: str) -> list[Edge]:
    found: list[Edge] = []
    while target != source:
        target, edge = before[target]
        found.append(edge)
    return found[::-1]


def gestures_of(path: Sequence[Edge]) -> list[str]:
    """Return the gestures of a way."""
    return [line for edge in path for line in edge.gestures]
