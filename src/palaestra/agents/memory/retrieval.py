"""Retrieval: which of some texts fit a query best, by its words or by its meaning.

Sources: BM25, Robertson and Zaragoza 2009; reciprocal rank fusion, Cormack et al. 2009; for meaning
see `embeddings`. The texts of a memory change from turn to turn and are few, so nothing is indexed
beforehand.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

By = Literal["words", "embeddings", "both"]
Retrieval = Callable[[str, Sequence[str], int], list[int]]
"""Query, texts, and how many at most, to the places of the best ones, best first."""

K1, B = 1.2, 0.75  # how soon a repeated word adds nothing; how much long texts pay for it
FUSION = 60  # how little the first ranks differ in a fusion


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """BM25 of each text for the query; 0 where they share no word."""
    counts = [Counter(words(text)) for text in texts]
    lengths = [count.total() for count in counts]
    mean = sum(lengths) / len(texts) if any(lengths) else 1.0
    found = [0.0] * len(texts)
    for word in set(words(query)):
        having = sum(word in count for count in counts)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for place, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            often = count[word]
            found[place] += rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
    return found


def best(query: str, texts: Sequence[str], count: int) -> list[int]:
    """The places of the best texts that share a word with the query, at most `count`.

    Best first; of equals, the later one.
    """
    rated = [(score, place) for place, score in enumerate(scores(query, texts)) if score > 0]
    return [place for _, place in sorted(rated, reverse=True)[:count]]


def retrieval(by: By) -> Retrieval:
    """The way of that name.

    Raises:
        MissingPackage: it needs embeddings, and they are not installed.
    """
    if by == "words":
        return best
    from palaestra.agents.memory.embeddings import check_installed, nearest

    check_installed()
    return nearest if by == "embeddings" else fused(best, nearest)


def fused(*ways: Retrieval) -> Retrieval:
    """Several ways as one: a text counts `1 / (60 + rank)` for each way that finds it."""

    def together(query: str, texts: Sequence[str], count: int) -> list[int]:
        worth: dict[int, float] = {}
        for way in ways:
            for rank, place in enumerate(way(query, texts, len(texts)), 1):
                worth[place] = worth.get(place, 0.0) + 1 / (FUSION + rank)
        return sorted(worth, key=lambda place: (worth[place], place), reverse=True)[:count]

    return together
