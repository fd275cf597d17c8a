"""Retrieval: the texts that match a query best, by words or by meaning.

Sources: reciprocal rank fusion, Cormack et al. 2009; for words see `core.bm25`, for meaning
`embeddings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from palaestra.core.bm25 import scores

By = Literal["words", "embeddings", "both"]
Retrieval = Callable[[str, Sequence[str], int], list[int]]
"""A function from a query, texts and a maximum count to the indices of the best, best first."""

FUSION = 60  # the constant k of reciprocal rank fusion


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
