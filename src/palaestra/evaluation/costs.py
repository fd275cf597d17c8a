"""What model calls cost: tokens read and sampled, and money where a price is known.

A model whose tokens are recorded (one with a renderer) is charged for what each call added to
its conversation; any other for what its server says that it read. A server that does not say
how much it sampled leaves that out: such calls are counted, so that a sum can say "at least".
So are calls to models without a price: what they cost is not known, which is not nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.model import free

_PRICE = re.compile(r"(?P<model>.+)=(?P<read>[\d.]+)/(?P<sampled>[\d.]+)")
_REMOTE = re.compile(r"[a-z]+:.+?@https?://[^?#]+")


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens, in any one currency."""

    read: float
    sampled: float


Prices = Mapping[str, Price]  # by the name under which a model speaks


@dataclass(frozen=True, slots=True)
class Spent:
    """What some calls have cost."""

    read: int = 0  # tokens
    sampled: int = 0  # tokens
    money: float | None = None  # of the calls to models with a price; None: there is none
    unknown: int = 0  # calls to such models that did not say how many tokens they sampled
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
    """The cost of one call."""
    read = len(call.prompt) or call.computed_tokens
    sampled = call.sampled or len(call.logprobs)
    price = prices.get(free(call.policy))
    if price is None:
        return Spent(read, sampled, unpriced=1)
    money = (price.read * read + price.sampled * sampled) / 1e6
    silent = not sampled and bool(call.reply.content) and price.sampled > 0
    return Spent(read, sampled, money, unknown=int(silent))


def total(calls: Iterable[Call], prices: Prices) -> Spent:
    """The cost of many calls."""
    spent = Spent()
    for call in calls:
        spent += spent_on(call, prices)
    return spent


def known_money(calls: Iterable[Call], prices: Prices) -> float | None:
    """What the calls have cost in money; None where a part of that is not known."""
    spent = total(calls, prices)
    return None if spent.unpriced or spent.unknown else spent.money


def added(one: float | None, other: float | None) -> float | None:
    """The sum of what is known of both; None where nothing is."""
    return other if one is None else one if other is None else one + other


def parse_prices(given: Iterable[str], models: Iterable[str]) -> dict[str, Price]:
    """The prices of options such as `openai:qwen3@http://localhost:8000/v1=0.2/0.6`.

    Args:
        given: MODEL=IN/OUT, the prices of a million tokens read and sampled.
        models: the models that take part; a price for any other one is a mistake.

    Raises:
        InputError: another form, or a model that does not take part.
    """
    known = {spoken(model) for model in models}
    found: dict[str, Price] = {}
    for text in given:
        match = _PRICE.fullmatch(text)
        try:
            price = Price(float(match["read"]), float(match["sampled"])) if match else None
        except ValueError:
            price = None
        if match is None or price is None:
            raise InputError(
                f"--price {text} is no price; write MODEL=IN/OUT, the prices of a million tokens "
                "read and sampled, such as openai:qwen3@http://localhost:8000/v1=0.2/0.6."
            )
        if spoken(match["model"]) not in known:
            raise InputError(
                f"--price {text} is of nobody: the models are {', '.join(sorted(known))}."
            )
        found[spoken(match["model"])] = price
    return found


def spoken(model: str) -> str:
    """The name under which a model speaks: a remote one's options and key are no part of it."""
    remote = _REMOTE.match(model)
    return remote[0] if remote else model
