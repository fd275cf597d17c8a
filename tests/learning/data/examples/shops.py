"""A world of tools, with one thing to know, and episodes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaestra.agents.direct import DirectAgent
from palaestra.core.episode import Episode, Key
from palaestra.core.task import Task
from palaestra.environments.authoring import ToolWorld, tool
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import renderer, run_episode


class Shop(ToolWorld):
    """Sell the lamp at its price."""

    def begin(self, task: Task) -> str:
        self.state = {"sold": 0}
        return "A customer wants the lamp."

    @tool
    def look_up(self, thing: str) -> str:
        """Return the price of a thing."""
        return f"The {thing} costs 40."

    @tool
    def greet(self) -> str:
        """Greet the customer."""
        return "Hello."

    @tool
    def sell(self, price: int) -> str:
        """Sell it."""
        self.state["sold"] = price
        return "Sold."

    def verdict(self) -> bool | None:
        return self.state["sold"] == 40 if self.state["sold"] else None


TOOLS = Shop().tools
LOOK, SELL, CHEAP = "look_up(thing='lamp')", "sell(price=40)", "sell(price=4)"


def visit(*replies: str, group: int = 0, member: int = 0) -> Episode:
    """An episode in which a model replies so."""
    model = ScriptedModel(replies, renderer=renderer(), name="policy")
    made = run_episode(DirectAgent(), model, LocalEnvironment(Shop()))
    return replace(made, key=Key("explore", group, member))


def trained(row: object) -> list[str]:
    """The replies that a row trains, as texts."""
    found: dict[int, list[int]] = {}
    for token, call, on in zip(row.tokens, row.calls, row.mask, strict=True):  # type: ignore[attr-defined]
        if on:
            found.setdefault(call, []).append(token)
    return [renderer().text(tokens) for tokens in found.values()]


def asked(row: object) -> str:
    """What stands before the first trained token, as text."""
    tokens: Sequence[int] = row.tokens[: row.mask.index(True)]  # type: ignore[attr-defined]
    return renderer().text(tokens)
