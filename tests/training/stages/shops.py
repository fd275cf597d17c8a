"""A world of tools for recipes: what a customer wants costs what only a tool tells."""

from __future__ import annotations

import random

from palaestra.core.environment import Action
from palaestra.core.task import Task
from palaestra.environments.authoring import ToolWorld, tool


class Shop(ToolWorld, capabilities={"oracle"}, typical_turns=3):
    """Sell at the price."""

    def begin(self, task: Task) -> str:
        self.state = {
            "price": 10 + random.Random(task.seed).randrange(90),
            "sold": 0,
            "seen": False,
        }
        return "A customer wants the lamp."

    @tool
    def look_up(self) -> str:
        """Return the price."""
        self.state["seen"] = True
        return f"It costs {self.state['price']}."

    @tool
    def sell(self, price: int) -> str:
        """Sell it."""
        self.state["sold"] = price
        return "Sold."

    def verdict(self) -> bool | None:
        return self.state["sold"] == self.state["price"] if self.state["sold"] else None

    def oracle(self) -> list[Action]:
        looking = [] if self.state["seen"] else [self.call("look_up")]
        return [*looking, self.call("sell", price=self.state["price"])]
