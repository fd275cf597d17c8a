"""When a kitchen's orders arrive and until when each must be delivered: the load of the cooks."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

WINDOW = 100  # steps in which an order must be delivered; of orders at the start, for each of them
AT_ONCE = (1, 2, 4)  # numbers of orders that are all there at the start
LOADS = (80, 40, 20)  # steps from one order to the next, from a light load to a heavy one
COUNT = 4  # orders that arrive one after another

NAMES = [*map(str, AT_ONCE), *(f"{COUNT}-every-{every}" for every in LOADS)]


@dataclass(frozen=True, slots=True)
class Orders:
    """A number of equal orders, all there at the start or one every so many steps."""

    count: int
    every: int = 0  # steps from one order to the next; 0: all are there at the start

    @classmethod
    def named(cls, name: str) -> Orders:
        """Return the orders of one of `NAMES`: "2" or "4-every-40"."""
        count, *every = map(int, re.findall(r"\d+", name))
        return cls(count, *every)

    @property
    def horizon(self) -> int:
        """The step at which the last order is due."""
        return self.due(self.count - 1)

    def due(self, order: int) -> int:
        """Return the last step in which an order, counted from 0, may be delivered."""
        return order * self.every + WINDOW if self.every else self.count * WINDOW

    def open(self, step: int, delivered: Collection[int]) -> list[int]:
        """Return the orders that may be delivered in a step (from 1), the first one due first."""
        return [
            order
            for order in range(self.count)
            if order * self.every < step <= self.due(order) and order not in delivered
        ]

    def late(self, step: int, delivered: Collection[int]) -> int:
        """Return the number of orders that were due by the end of a step and not delivered."""
        return sum(
            self.due(order) <= step and order not in delivered for order in range(self.count)
        )

    def closed(self, step: int, delivered: Collection[int]) -> bool:
        """Return whether at the end of a step each order is delivered or too late."""
        return len(delivered) + self.late(step, delivered) == self.count

    @property
    def rule(self) -> str:
        """What the cooks are told about the orders."""
        if not self.every:
            number = "1 soup is" if self.count == 1 else f"{self.count} soups are"
            return f"{number} ordered, due by step {self.horizon}."
        return (
            f"{self.count} soups are ordered, one every {self.every} steps from the start; "
            f"each must be delivered within {WINDOW} steps, and none before it is ordered."
        )
