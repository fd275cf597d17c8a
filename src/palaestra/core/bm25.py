"""BM25: how well texts match a query by their words (Robertson and Zaragoza 2009).

The texts are few and change often, so there is no index.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

K1, B = 1.2, 0.75  # term-frequency saturation; length normalisation


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """Return the BM25 score of each text for the query; 0 where they share no word."""
    counts = [Counter(words(text)) for text in texts]
    lengths = [count.total() for count in counts]
    mean = sum(lengths) / len(texts) if any(lengths) else 1.0
    found = [0.0] * len(texts)
    for word in sorted(set(words(query))):  # in an order of its own, so that equal sums are equal
        having = sum(word in count for count in counts)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for index, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            often = count[word]
            found[index] += rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
    return found
