"""What people have in the further apps: small, equal for equal seeds, and of one piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import refusal
from palaestra.environments.families.apps.population import populate
from palaestra.environments.families.apps.setting import Setting, life, office
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.stock import LIFE, OFFICE, stock_app

ALL = Suite.of([stock_app(name) for name in dict.fromkeys((*LIFE, *OFFICE, "user"))])
WORLDS = [("small", 0), ("small", 1), pytest.param("medium", 0, marks=pytest.mark.slow)]


@cache
def world(size: str, seed: int) -> State:
    return State(populate(ALL, size, seed))


@pytest.mark.parametrize("setting", [life, office])
def test_a_small_world_is_small_and_follows_from_its_seed(setting: Callable[[], Setting]) -> None:
    suite = setting().suite
    once, again, other = (populate(suite, "small", seed) for seed in (5, 5, 6))
    assert once.database == again.database != other.database
    state = State(once)
    assert 300 < sum(state.count(table) for table in state.columns) < 1000


def test_an_app_has_the_same_history_whichever_others_are_there() -> None:
    few = State(populate(Suite.of([stock_app("supervisor"), stock_app("chat")]), "small", 0))
    many = world("small", 0)
    assert few.rows("chat.message") == many.rows("chat.message")


@pytest.mark.parametrize(("size", "seed"), WORLDS)
def test_every_value_is_one_that_its_field_takes_and_every_reference_leads_to_a_row(
    size: str, seed: int
) -> None:
    state = world(size, seed)
    for app, blueprint in ALL.blueprints.items():
        for name, entity in blueprint.entities.items():
            for row in state.rows(f"{app}.{name}"):
                for field, column in entity.fields.items():
                    if row[field] is not None:
                        assert refusal(column, row[field]) is None, (app, name, field, row)
        for name, field, target in blueprint.references:
            ids = {row["id"] for row in state.rows(target)} | {None}
            assert {row[field] for row in state.rows(f"{app}.{name}")} <= ids


@pytest.mark.parametrize(("size", "seed"), WORLDS)
def test_people_deal_with_people_they_know(size: str, seed: int) -> None:
    state = world(size, seed)
    names = {row["id"]: row["email"] for row in state.rows("supervisor.person")}
    known = {(names[row["owner"]], row["email"]) for row in state.rows("contacts.contact")}
    for row in state.rows("payments.request"):
        assert names[row["owner"]] == row["asker"]
        assert (row["asker"], row["payer"]) in known
    rooms = {row["id"]: names[row["owner"]] for row in state.rows("chat.room")}
    inside = set(rooms.items())
    inside |= {(row["room_id"], row["email"]) for row in state.rows("chat.member")}
    assert {(row["room_id"], row["sender"]) for row in state.rows("chat.message")} <= inside
    company = {email.partition("@")[2] for email in (names[1],)}
    for table, field in (("tracker.ticket", "assignee"), ("repository.change", "author")):
        assert {row[field].partition("@")[2] for row in state.rows(table)} == company


@pytest.mark.parametrize(("size", "seed"), WORLDS)
def test_what_was_bought_adds_up(size: str, seed: int) -> None:
    state = world(size, seed)
    lines: Counter[int] = Counter()
    for row in state.rows("shop.line"):
        lines[row["order_id"]] += round(100 * row["quantity"] * row["price"])
    for row in state.rows("shop.order"):
        assert lines[row["id"]] == round(100 * row["total"])
    assert all(cents % 10_000 == 0 for cents in opened(state).values())


def opened(state: State) -> dict[int, int]:
    """With what checking and savings accounts were opened, together, in cents, by their owner."""
    cards = {row["id"]: row["owner"] for row in state.rows("bank.card")}
    people = {row["email"]: row["owner"] for row in state.rows("supervisor.person")}
    cents: Counter[int] = Counter()

    def add(owner: int, amount: float) -> None:
        cents[owner] += round(100 * amount)

    for row in state.rows("bank.account"):
        add(row["owner"], row["balance"])
    for row in state.rows("bank.payment"):
        add(row["owner"], row["amount"])
        add(people[row["payee"]], -row["amount"])
    for table in ("shop.order", "travel.booking", "travel.stay"):
        for row in state.rows(table):
            if row["status"] != "cancelled":
                add(cards[row["card_id"]], row["total"])
    for row in state.rows("shop.refund"):
        add(row["owner"], -row["amount"])
    return dict(cents)


def test_merged_changes_are_what_the_files_say() -> None:
    state = world("small", 0)
    status: dict[int, Row] = {row["id"]: row for row in state.rows("repository.change")}
    texts = {row["id"]: row["text"] for row in state.rows("repository.file")}
    merged = [
        e for e in state.rows("repository.edit") if status[e["change_id"]]["status"] == "merged"
    ]
    assert {edit["file_id"]: edit["text"] for edit in merged} == texts
    for review in state.rows("repository.review"):
        assert review["reviewer"] != status[review["change_id"]]["author"]
