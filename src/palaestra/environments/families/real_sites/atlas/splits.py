"""What belongs to a split: three fifths for training, a fifth each for validation and test.

What an agent has learned by heart about a country or a town helps in no test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from palaestra.core.task import Split

PARTS = 5
OF_SPLIT = {Split.TRAIN: (0, 1, 2), Split.VALIDATION: (3,), Split.TEST: (4,)}
T = TypeVar("T")


def of_split(seed: int, items: Iterable[T]) -> list[T]:
    """Return the items that belong to the split of a world with that seed, in their order."""
    split = list(Split)[seed % len(Split)]
    return [item for index, item in enumerate(items) if index % PARTS in OF_SPLIT[split]]
