"""Filters: which candidates are tasks.

In this order: whether all pages of the kind were read, else another one may fit; whether the goal
means one page only; whether it does not tell the answer; whether clicks lead from the first page to
every page that it takes, and it is not the first one; whether no kept task is nearly the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.core.bm25 import words
from palaestra.environments.families.page_graph.linked_pages import Edge, PageGraph, gestures_of
from palaestra.environments.families.page_graph.meta_paths import Candidate, sampled

GESTURES = 10  # of the way, at most
SIMILAR = 0.8  # Jaccard similarity of the words of two goals, from which they are nearly the same
SAMPLES = 400  # of a world


@dataclass
class Kept:
    """The tasks of a graph, and why other candidates are none."""

    tasks: list[Candidate] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    samples: int = 0


def kept_tasks(graph: PageGraph, rng: random.Random, most: int) -> Kept:
    """Sample candidates until there are enough tasks, or `SAMPLES` were drawn."""
    kept = Kept()
    for _ in range(SAMPLES):
        if len(kept.tasks) == most:
            break
        candidate = sampled(graph, rng)
        if candidate is None:
            continue
        kept.samples += 1
        why = rejection(graph, candidate, kept.tasks)
        if why is None:
            kept.tasks.append(candidate)
        else:
            kept.rejected[why] += 1
    return kept


def rejection(graph: PageGraph, candidate: Candidate, kept: Sequence[Candidate]) -> str | None:
    """Return why a candidate is no task; None: it is one."""
    if not all(graph.is_complete(kind) for kind, _ in candidate.keys):
        return "incomplete"
    if not _is_clear(graph, candidate):
        return "ambiguous"
    if candidate.answer is not None and candidate.meta_path != "compare":
        said = candidate.goal.casefold()
        if str(candidate.answer).casefold() in said:
            return "told"
    path = way(graph, graph.start, candidate.stops)
    if path is None or len(gestures_of(path)) > GESTURES:
        return "unreachable"
    if not path:
        return "trivial"
    if any(_is_like(candidate, other) for other in kept):
        return "duplicate"
    return None


def way(graph: PageGraph, source: str, stops: Sequence[str]) -> list[Edge] | None:
    """Return the shortest way from one page over others; None if there is none."""
    found: list[Edge] = []
    for stop in stops:
        part = graph.path(source, stop)
        if part is None:
            return None
        found += part
        source = stop
    return found


def _is_clear(graph: PageGraph, candidate: Candidate) -> bool:
    """Return whether each page by which the goal says where to look is the only one."""
    kinds = graph.kinds()
    for kind, key in candidate.keys:
        if sum(page.value(key.label) == key.value for page in kinds[kind]) != 1:
            return False
    titles = Counter(one.title for at, one in graph.pages.items() if at not in graph.found)
    return all(titles[title] == 1 for title in candidate.titles)


def _is_like(one: Candidate, other: Candidate) -> bool:
    if one.meta_path == other.meta_path and one.asked == other.asked:
        return True
    first, second = set(words(one.goal)), set(words(other.goal))
    return len(first & second) / len(first | second) >= SIMILAR
