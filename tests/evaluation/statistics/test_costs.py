"""Costs: tokens as recorded or reported, and money only where prices are known."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import assistant
from palaestra.core.model import Finish
from palaestra.evaluation.reports.cell_samples import totals
from palaestra.evaluation.statistics.costs import (
    Price,
    Spent,
    parse_prices,
    recorded_name,
    spent_on,
    total,
)

REMOTE = "openai:qwen3@http://localhost:8000/v1"


def call(policy: str, **given: Any) -> Call:
    terms: dict[str, Any] = {
        "index": 0, "parent": None, "role": "agent", "messages": (), "prompt": (),
        "reply": assistant("left"), "completion": (), "logprobs": (), "finish": Finish.STOP,
        "policy": policy, "version": 0,
    }  # fmt: skip
    return Call(**(terms | given))


def test_recorded_tokens_are_charged_once_however_often_they_were_read() -> None:
    known = call("m", prompt=(1, 2, 3), completion=(4, 5), logprobs=(0.0, 0.0), computed_tokens=90)
    assert spent_on(known, {}) == Spent(read=3, sampled=2, unpriced=1)
    assert spent_on(known, {"m": Price(1e6, 2e6)}).money == 3 + 4


def test_what_a_server_does_not_tell_is_counted_as_unknown() -> None:
    shown = call(REMOTE, computed_tokens=100, logprobs=(0.0,) * 7)
    silent = call(REMOTE, computed_tokens=100)
    prices = {REMOTE: Price(0.5, 2.0)}
    assert spent_on(shown, prices) == Spent(100, 7, (50 + 14) / 1e6)
    both = total([shown, silent], prices)
    assert (both.tokens, both.unknown) == (207, 1)
    assert both.money == pytest.approx((50 + 14 + 50) / 1e6)
    assert spent_on(silent, {}).unknown == 0  # no prices were given


def test_a_remote_model_is_priced_by_the_name_under_which_it_speaks() -> None:
    name = f"{REMOTE}?concurrency=4&cache=a.db#API_KEY"
    assert recorded_name(name) == REMOTE
    assert recorded_name("runs/quick") == "runs/quick"
    assert parse_prices([f"{name}=0.2/0.6"], [name, "random"]) == {REMOTE: Price(0.2, 0.6)}


@pytest.mark.parametrize("text", ["m", "m=1", "m=1/x", "=1/2", "m=1.2.3/1", "other=1/2"])
def test_what_is_no_price_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="--price"):
        parse_prices([text], ["m"])


def test_a_model_without_a_price_leaves_money_unknown_and_never_nothing() -> None:
    free, dear = call("local", prompt=(1, 2)), call("dear", prompt=(1, 2), logprobs=(0.0,))
    prices = {"dear": Price(1e6, 1e6)}
    assert total([free], prices).money is None
    assert total([], prices).money is None
    both = total([free, dear], prices)
    assert (both.money, both.unpriced) == (3.0, 1)
    unconstrained = total([free], {"local": Price(0.0, 0.0)})
    assert (unconstrained.money, unconstrained.unknown) == (0.0, 0)  # whatever it sampled


def test_totals_add_what_is_known_and_count_what_is_not() -> None:
    cell = {"prompt_tokens": 5, "sampled_tokens": 1, "unknown_calls": 0}
    local = {**cell, "money": None, "unpriced_calls": 4}
    dear = {**cell, "money": 0.5, "unpriced_calls": 0}
    assert totals([local, local])["money"] is None
    assert totals([local, dear, dear]) == {
        "prompt_tokens": 15, "sampled_tokens": 3, "unknown_calls": 0,
        "unpriced_calls": 4, "money": 1.0,
    }  # fmt: skip
