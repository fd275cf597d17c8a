"""Multiple testing: p-values adjusted for the number of tests.

`holm` bounds the probability of any false positive (family-wise error rate) under any dependence;
`benjamini_hochberg` bounds the expected share of false positives among the positives (false
discovery rate) for independent or positively dependent tests. Use the first for a few claims, the
second to screen many.

Sources: Holm 1979; Benjamini and Hochberg 1995.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import InputError


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the given order: reject those of at most alpha.

    Raises:
        InputError: a p-value is not within [0, 1].
    """
    order = _ascending(p_values)
    adjusted = [0.0] * len(order)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p-values, in the given order.

    Raises:
        InputError: a p-value is not within [0, 1].
    """
    order = _ascending(p_values)
    adjusted = [0.0] * len(order)
    smallest = 1.0
    for rank in reversed(range(len(order))):
        index = order[rank]
        smallest = min(smallest, len(order) / (rank + 1) * p_values[index])
        adjusted[index] = smallest
    return adjusted


def _ascending(p_values: Sequence[float]) -> list[int]:
    for p in p_values:
        if not 0 <= p <= 1:
            raise InputError(f"A p-value of {p} is invalid; give numbers from 0 to 1.")
    return sorted(range(len(p_values)), key=lambda index: p_values[index])
