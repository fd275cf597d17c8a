"""The cost of model calls: tokens read and sampled, and money if a price is known.

A model with recorded tokens (one with a renderer) is charged for the tokens that each call added
to its conversation; any other for the prompt tokens that its server reports. Calls whose server
does not report the sampled tokens are counted, so that a sum can say "at least". So are calls to
models without a price: their cost is unknown, not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.model import free, without_adapter

_PRICE = re.compile(r"(?P<model>.+)=(?P<read>[\d.]+)/(?P<sampled>[\d.]+)")
_REMOTE = re.compile(r"[a-z]+:.+?@https?://[^?#]+")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in any one currency."""

    read: float
    sampled: float


Prices = Mapping[str, Price]  # by the model's name in records, see `recorded_name`


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of some calls."""

    read: int = 0  # tokens
    sampled: int = 0  # tokens
    money: float | None = None  # of the calls to models with a price; None: no such call
    unknown: int = 0  # calls to such models without a reported number of sampled tokens
    unpriced: int = 0  # calls to models without a price

    @property
    def tokens(self) -> int:
        return self.read + self.sampled

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.read + other.read,
            self.sampled + other.sampled,
            added(self.money, other.money),
            self.unknown + other.unknown,
            self.unpriced + other.unpriced,
        )


def spent_on(call: Call, prices: Prices) -> Spent:
    """Return the cost of one call."""
    read = len(call.prompt) or call.computed_tokens
    sampled = call.sampled or len(call.logprobs)
    price = prices.get(without_adapter(free(call.policy)))
    if price is None:
        return Spent(read, sampled, unpriced=1)
    money = (price.read * read + price.sampled * sampled) / 1e6
    silent = not sampled and bool(call.reply.parts) and price.sampled > 0
    return Spent(read, sampled, money, unknown=int(silent))


def total(calls: Iterable[Call], prices: Prices) -> Spent:
    """Return the cost of many calls."""
    spent = Spent()
    for call in calls:
        spent += spent_on(call, prices)
    return spent


def known_money(calls: Iterable[Call], prices: Prices) -> float | None:
    """Return the calls' cost in money; None if a part of it is unknown."""
    spent = total(calls, prices)
    return None if spent.unpriced or spent.unknown else spent.money


def added(one: float | None, other: float | None) -> float | None:
    """Return the sum of the known values; None if neither is known."""
    return other if one is None else one if other is None else one + other


def parse_prices(given: Iterable[str], models: Iterable[str]) -> dict[str, Price]:
    """Parse price options such as `openai:qwen3@http://localhost:8000/v1=0.2/0.6`.

    Args:
        given: MODEL=IN/OUT, the prices of a million tokens read and sampled.
        models: the models of the evaluation; a price for any other one is an error.

    Raises:
        InputError: a malformed price, or a model that is not part of the evaluation.
    """
    known = {recorded_name(model) for model in models}
    found: dict[str, Price] = {}
    for text in given:
        match = _PRICE.fullmatch(text)
        try:
            price = Price(float(match["read"]), float(match["sampled"])) if match else None
        except ValueError:
            price = None
        if match is None or price is None:
            raise InputError(
                f"--price {text} is malformed; write MODEL=IN/OUT, the prices of a million tokens "
                "read and sampled, such as openai:qwen3@http://localhost:8000/v1=0.2/0.6."
            )
        if recorded_name(match["model"]) not in known:
            raise InputError(
                f"--price {text} names no model of this evaluation; choose from "
                f"{', '.join(sorted(known))}."
            )
        found[recorded_name(match["model"])] = price
    return found


def recorded_name(model: str) -> str:
    """Return a model's name in records: without the options and the key of a remote one."""
    remote = _REMOTE.match(model)
    return remote[0] if remote else model
