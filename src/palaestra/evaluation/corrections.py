"""Many tests at once: p-values adjusted so that one may still believe the small ones.

`holm` bounds the chance of even one false alarm, whatever the tests have to do with each
other; `benjamini_hochberg` bounds the expected share of false alarms among the alarms, for
tests that are independent or positively related. Take the first for a few claims, the
second to sift many.

Sources: Holm 1979; Benjamini and Hochberg 1995.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import InputError


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: reject where one is at most alpha.

    Raises:
        InputError: a p-value is not within [0, 1].
    """
    order = _ascending(p_values)
    adjusted = [0.0] * len(order)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given.

    Raises:
        InputError: a p-value is not within [0, 1].
    """
    order = _ascending(p_values)
    adjusted = [0.0] * len(order)
    smallest = 1.0
    for rank in reversed(range(len(order))):
        place = order[rank]
        smallest = min(smallest, len(order) / (rank + 1) * p_values[place])
        adjusted[place] = smallest
    return adjusted


def _ascending(p_values: Sequence[float]) -> list[int]:
    for p in p_values:
        if not 0 <= p <= 1:
            raise InputError(f"A p-value of {p} cannot be; give numbers from 0 to 1.")
    return sorted(range(len(p_values)), key=lambda place: p_values[place])
