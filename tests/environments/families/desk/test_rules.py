"""Each rule of each policy: sequences of calls that keep it, and others that break it."""

from __future__ import annotations

import pytest

from palaestra.core.temporal_logic import Atom, Moment, atoms, holds, parse
from palaestra.environments.families.apps.composing.policy import Trace
from palaestra.environments.families.desk.drawing import DESKS
from palaestra.environments.families.desk.user import CONFIRMS

KEPT = "kept"
CASES = [
    ("orders", "identity", "", KEPT),
    ("orders", "identity", "search_orders show_order", KEPT),
    ("orders", "identity", "verify_customer cancel_order", KEPT),
    ("orders", "identity", "change_address", "broken"),
    ("orders", "identity", "send_label verify_customer", "broken"),
    ("orders", "confirmation", "show_order user.confirms cancel_order", KEPT),
    ("orders", "confirmation", "change_address", KEPT),
    ("orders", "confirmation", "verify_customer cancel_order", "broken"),
    ("orders", "confirmation", "user.confirms return_order exchange_order", "broken"),
    ("orders", "confirmation", "user.confirms return_order user.confirms exchange_order", KEPT),
    ("orders", "label", "return_order send_label", KEPT),
    ("orders", "label", "return_order show_order", "broken"),
    ("orders", "label", "return_order send_label return_order", "broken"),
    ("telephone", "identity", "verify_customer lift_suspension", KEPT),
    ("telephone", "identity", "phone.show_status verify_customer phone.restart", KEPT),
    ("telephone", "identity", "phone.restart verify_customer", "broken"),
    ("telephone", "identity", "phone.restart book_technician verify_customer", "broken"),
    ("telephone", "confirmation", "user.confirms change_plan", KEPT),
    ("telephone", "confirmation", "add_gigabytes user.confirms", "broken"),
    ("telephone", "confirmation", "user.confirms add_gigabytes add_gigabytes", "broken"),
    ("telephone", "restart first", "phone.restart book_technician", KEPT),
    ("telephone", "restart first", "phone.show_status book_technician phone.restart", "broken"),
    ("hotel", "identity", "verify_guest add_service", KEPT),
    ("hotel", "identity", "allow_late_checkout", "broken"),
    ("hotel", "confirmation", "user.confirms cancel_booking", KEPT),
    ("hotel", "confirmation", "user.confirms add_service add_service", "broken"),
    ("hotel", "quote", "quote_change change_booking", KEPT),
    ("hotel", "quote", "change_booking quote_change", "broken"),
    ("hotel", "cancelled last", "add_service cancel_booking list_bookings", KEPT),
    ("hotel", "cancelled last", "cancel_booking allow_late_checkout", "broken"),
    ("support", "articles", "search_orders knowledge.list_articles return_order", KEPT),
    ("support", "articles", "return_order knowledge.search_articles", "broken"),
    ("support", "confirmation", "user.confirms book_repair", KEPT),
    ("support", "confirmation", "user.confirms book_repair return_order", "broken"),
    ("services", "confirmation", "list_notes user.confirms delivery.order_meal", KEPT),
    ("services", "confirmation", "user.confirms travel.book_trip reserve_table", "broken"),
    ("services", "confirmation", "travel.cancel_booking user.confirms", "broken"),
    ("services", "notes", "list_notes delivery.order_meal delivery.order_meal", KEPT),
    ("services", "notes", "delivery.order_meal list_notes", "broken"),
    ("services", "old trips first", "travel.cancel_booking travel.book_trip", KEPT),
    ("services", "old trips first", "travel.book_trip travel.cancel_booking", "broken"),
]


@pytest.mark.parametrize(("desk", "name", "events", "wanted"), CASES)
def test_a_rule_is_kept_or_broken(desk: str, name: str, events: str, wanted: str) -> None:
    (rule,) = [rule for rule in DESKS[desk].rules if rule.name == name]
    named = [event if "." in event else f"{desk}.{event}" for event in events.split()]
    trace = Trace([rule])
    for event in named:
        trace.add(event)
    assert trace.broken() == (() if wanted == KEPT else (name,))
    moments = [Moment("", event) for event in named]
    assert holds(parse(rule.formula), moments) is (wanted == KEPT)


def test_every_rule_has_a_case_of_each_kind() -> None:
    rules = {(desk, rule.name) for desk, made in DESKS.items() for rule in made.rules}
    for wanted in (KEPT, "broken"):
        assert {(desk, name) for desk, name, _, found in CASES if found == wanted} == rules


@pytest.mark.parametrize("desk", DESKS)
def test_the_agent_reads_every_rule(desk: str) -> None:
    for rule in DESKS[desk].rules:
        assert rule.words in DESKS[desk].policy


@pytest.mark.parametrize("desk", DESKS)
def test_formulas_name_calls_that_exist(desk: str) -> None:
    """Look for words with a full stop in formulas: they are names of calls, or `user.confirms`."""
    names = {*DESKS[desk].suite.apis, CONFIRMS}
    for rule in DESKS[desk].rules:
        for atom in atoms(parse(rule.formula)):
            matches = [n for n in names if Atom(atom.text, pattern=atom.pattern).fits(n)]
            alternatives = atom.text.count("|") + 1
            assert len(matches) == alternatives, (rule.name, atom.text)


def test_a_call_that_would_break_a_rule_is_known_before() -> None:
    trace = Trace(DESKS["orders"].rules)
    assert trace.forbids("orders.cancel_order") and not trace.forbids("orders.show_order")
    for event in ("orders.verify_customer", "user.confirms"):
        trace.add(event)
    assert not trace.forbids("orders.cancel_order")
    key = trace.key()
    trace.add("orders.show_order")
    assert trace.key() == key
