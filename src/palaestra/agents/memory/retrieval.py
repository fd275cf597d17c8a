"""Retrieval: the texts that match a query best, by words or by meaning.

Sources: BM25, Robertson and Zaragoza 2009; reciprocal rank fusion, Cormack et al. 2009; for meaning
see `embeddings`. The texts of a memory are few and change each turn, so there is no index.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

By = Literal["words", "embeddings", "both"]
Retrieval = Callable[[str, Sequence[str], int], list[int]]
"""A function from a query, texts and a maximum count to the indices of the best, best first."""

K1, B = 1.2, 0.75  # term-frequency saturation; length normalisation
FUSION = 60  # the constant k of reciprocal rank fusion


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """Return the BM25 score of each text for the query; 0 where they share no word."""
    counts = [Counter(words(text)) for text in texts]
    lengths = [count.total() for count in counts]
    mean = sum(lengths) / len(texts) if any(lengths) else 1.0
    found = [0.0] * len(texts)
    for word in set(words(query)):
        having = sum(word in count for count in counts)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for index, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            often = count[word]
            found[index] += rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
    return found


def best(query: str, texts: Sequence[str], count: int) -> list[int]:
    """Return the indices of the best texts by BM25, at most `count`, best first.

    Texts that share no word with the query are left out; of equals, the later one comes first.
    """
    rated = [(score, index) for index, score in enumerate(scores(query, texts)) if score > 0]
    return [index for _, index in sorted(rated, reverse=True)[:count]]


def retrieval(by: By) -> Retrieval:
    """Return the retrieval method of that name.

    Raises:
        MissingPackage: it needs embeddings, which are not installed.
    """
    if by == "words":
        return best
    from palaestra.agents.memory.embeddings import check_installed, nearest

    check_installed()
    return nearest if by == "embeddings" else fused(best, nearest)


def fused(*methods: Retrieval) -> Retrieval:
    """Combine methods by reciprocal rank: a text scores `1 / (60 + rank)` for each method."""

    def combined(query: str, texts: Sequence[str], count: int) -> list[int]:
        score: dict[int, float] = {}
        for method in methods:
            for rank, index in enumerate(method(query, texts, len(texts)), 1):
                score[index] = score.get(index, 0.0) + 1 / (FUSION + rank)
        return sorted(score, key=lambda index: (score[index], index), reverse=True)[:count]

    return combined
