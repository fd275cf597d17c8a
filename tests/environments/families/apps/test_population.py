"""Populated worlds have their size, are equal for equal seeds, and agree across their apps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse, refusal
from palaestra.environments.families.apps.generated import generated_app
from palaestra.environments.families.apps.population import START, populate, world_template
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.stock import stock_app, stock_suite
from palaestra.environments.families.apps.world import World

SUITE = stock_suite()
WORLDS = [*(("small", seed) for seed in range(5)), ("medium", 0)]
LIBRARY = """
app = "library"
about = "Books, and who has them."

[entities.loan]
about = "A loan of a book; named before what it refers to."
owner = "owner"
readers = ["witness", "helper"]
fields.owner = {type = "person", by = "service"}
fields.book_id = {type = "integer", refers = "book"}
fields.shelf_id = {type = "integer", refers = "shelf"}
fields.renews = {type = "integer", refers = "loan", by = "service"}
fields.friend_id = {type = "integer", refers = "contacts.contact"}
fields.witness = "person"
fields.helper = "email"
fields.hotline = "phone"
fields.due = "date"
fields.lent = {type = "time", by = "service"}
fields.fee = {type = "money", least = 0.5, most = 3.25}
fields.days = {type = "integer", least = 7, most = 9, default = 8}
fields.weight = {type = "integer", most = -3}

[entities.book]
about = "A book."
owner = "owner"
unique = [["code"], ["genre", "title"]]
most = 4
fields.owner = {type = "person", by = "service"}
fields.title = {type = "text", least = 30, most = 40}
fields.code = {type = "integer", least = 1, most = 5}
fields.genre = {type = "choice", choices = ["novel", "poems"]}
fields.read = {type = "boolean", default = false}
fields.remark = {type = "text", free = true}

[entities.shelf]
about = "A shelf, which is everybody's."
public = true
fields.name = {type = "text", most = 3}
"""


@cache
def world(size: str, seed: int) -> State:
    return State(world_template(SUITE, size, seed))


@cache
def people(size: str, seed: int) -> dict[str, Row]:
    return {row["email"]: row for row in world(size, seed).rows("supervisor.person")}


@cache
def acquainted(size: str, seed: int) -> dict[tuple[int, str], str]:
    """The relation of the owner of a contact to the address in it."""
    rows = world(size, seed).rows("contacts.contact")
    return {(row["owner"], row["email"]): row["relation"] for row in rows}


def number_of_rows(state: State) -> int:
    return sum(state.count(table) for table in state.columns)


# ── size and seed ────────────────────────────────────────────────────────────


def test_sizes() -> None:
    assert number_of_rows(world("small", 0)) < 1000
    assert 5000 <= number_of_rows(world("medium", 0)) <= 10_000


@pytest.mark.slow
def test_a_large_world_has_its_size_and_its_key() -> None:
    large = State(populate(SUITE, "large", 0))
    assert number_of_rows(large) >= 50_000
    assert large.total() == large.template().total


def test_equal_seeds_give_equal_bytes_and_others_other_worlds() -> None:
    worlds = [populate(SUITE, "small", seed) for seed in (7, 7, 8)]
    assert worlds[0] == worlds[1]
    assert worlds[0].total != worlds[2].total


@pytest.mark.slow
def test_another_process_gives_equal_bytes() -> None:
    code = (
        "import hashlib; from palaestra.environments.families.apps.population import populate;"
        "from palaestra.environments.families.apps.stock import stock_suite;"
        "print(hashlib.sha256(populate(stock_suite(), 'medium', 3).database).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_templates_are_kept() -> None:
    assert world_template(SUITE, "small", 0) is world_template(SUITE, "small", 0)


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(UnknownName, match="Known: large, medium, small"):
        populate(SUITE, "smal", 0)


def test_a_suite_without_people_is_refused() -> None:
    with pytest.raises(InputError, match="needs the app 'supervisor'"):
        populate(Suite.of([stock_app("bank")]), "small", 0)


# ── what holds in every world ────────────────────────────────────────────────


@pytest.mark.parametrize(("size", "seed"), WORLDS)
class TestEveryWorld:
    def test_keeps_its_key(self, size: str, seed: int) -> None:
        state = world(size, seed)
        assert state.total() == state.template().total
        assert state.changes() == []

    def test_has_values_that_their_fields_take(self, size: str, seed: int) -> None:
        state = world(size, seed)
        for table, columns in state.columns.items():
            for row in state.rows(table):
                for name, column in columns.items():
                    if row[name] is None:
                        assert column.refers and column.by == "service"
                    else:
                        assert refusal(column, row[name]) is None, (table, name, row)

    def test_has_people_with_names_of_their_own(self, size: str, seed: int) -> None:
        rows = world(size, seed).rows("supervisor.person")
        for field in ("name", "email", "phone"):
            assert len({row[field] for row in rows}) == len(rows)
        assert all(row["owner"] == row["id"] for row in rows)

    def test_has_namesakes_among_the_first_persons_contacts(self, size: str, seed: int) -> None:
        rows = world(size, seed).find("contacts.contact", owner=1)
        firsts = Counter(row["name"].split()[0] for row in rows)
        assert max(firsts.values()) >= 2
        assert len(firsts) >= len(rows) - 3

    def test_has_contacts_that_are_mutual_and_real(self, size: str, seed: int) -> None:
        known = people(size, seed)
        relations = acquainted(size, seed)
        emails = {row["id"]: email for email, row in known.items()}
        for row in world(size, seed).rows("contacts.contact"):
            other = known[row["email"]]
            assert (row["name"], row["phone"]) == (other["name"], other["phone"])
            assert relations[other["id"], emails[row["owner"]]] == row["relation"]
            me = known[emails[row["owner"]]]
            if row["relation"] == "family":
                assert other["address"] == me["address"]
                assert other["name"].split()[1] == me["name"].split()[1]
            if row["relation"] == "colleague":
                assert row["email"].split("@")[1] == me["email"].split("@")[1]

    def test_has_passwords_for_everybody_that_sign_in(self, size: str, seed: int) -> None:
        state = world(size, seed)
        private = [app for app, blueprint in SUITE.blueprints.items() if blueprint.private]
        for person in state.rows("supervisor.person")[:20]:
            rows = state.find("supervisor.credential", owner=person["id"])
            assert [row["app"] for row in rows] == private
        live = World(SUITE, world_template(SUITE, size, seed), START)
        secret = {key: rows[0][key] for key in ("username", "password")}
        signed = live.call(f"{rows[0]['app']}.login", secret)
        assert signed.ok

    def test_has_balances_that_payments_explain(self, size: str, seed: int) -> None:
        state, known = world(size, seed), people(size, seed)
        moved: Counter[int] = Counter()
        for row in state.rows("bank.payment"):
            payer, payee = known[row["payer"]], known[row["payee"]]
            assert row["owner"] == payer["id"] != payee["id"]
            assert (payer["id"], row["payee"]) in acquainted(size, seed)
            assert row["paid"] < START
            moved[payer["id"]] -= round(row["amount"] * 100)
            moved[payee["id"]] += round(row["amount"] * 100)
        for person in known.values():
            checking, savings = state.find("bank.account", owner=person["id"])
            assert [checking["name"], savings["name"]] == ["checking", "savings"]
            opened = round(checking["balance"] * 100) - moved[person["id"]]
            assert opened % 10_000 == 0
            assert min(checking["balance"], savings["balance"]) >= 1000

    def test_has_cards_of_their_owners_accounts(self, size: str, seed: int) -> None:
        state = world(size, seed)
        for card in state.rows("bank.card"):
            account = state.get("bank.account", card["account_id"])
            assert account is not None and account["owner"] == card["owner"]

    def test_has_invitations_of_contacts_to_their_owners_events(self, size: str, seed: int) -> None:
        state = world(size, seed)
        for row in state.rows("calendar.invitation"):
            event = state.get("calendar.event", row["event_id"])
            assert event is not None and event["owner"] == row["owner"]
            assert (row["owner"], row["email"]) in acquainted(size, seed)
            assert row["answer"] != "waiting" or event["starts"] >= START
        titles = Counter((row["owner"], row["title"]) for row in state.rows("calendar.event"))
        assert set(titles.values()) == {1}

    def test_has_a_copy_of_each_mail_in_both_mailboxes(self, size: str, seed: int) -> None:
        state, known = world(size, seed), people(size, seed)
        said = ("sender", "recipient", "subject", "body", "sent")
        copies: Counter[tuple[object, ...]] = Counter()
        for row in state.rows("mail.message"):
            sends = row["folder"] == "sent"
            assert known[row["sender" if sends else "recipient"]]["id"] == row["owner"]
            assert (known[row["sender"]]["id"], row["recipient"]) in acquainted(size, seed)
            assert row["sent"] < START
            copies[*(row[key] for key in said)] += 1 if sends else -1
        assert set(copies.values()) == {0}

    def test_has_replies_to_what_their_owner_has(self, size: str, seed: int) -> None:
        state = world(size, seed)
        replies = 0
        for row in state.rows("mail.message"):
            if row["answers"] is None:
                assert not row["subject"].startswith("Re: ")
                continue
            answered = state.get("mail.message", row["answers"])
            assert answered is not None
            assert row["owner"] == answered["owner"]
            assert row["subject"] == f"Re: {answered['subject']}"
            assert (row["sender"], row["recipient"]) == (answered["recipient"], answered["sender"])
            assert row["sent"] > answered["sent"]
            replies += 1
        assert replies > 0

    def test_has_mails_about_what_is_in_other_apps(self, size: str, seed: int) -> None:
        state, known = world(size, seed), people(size, seed)
        numbers = {row["name"]: row["phone"] for row in known.values()}
        kinds: Counter[str] = Counter()
        for row in state.rows("mail.message", "folder = 'sent'"):
            subject, body = row["subject"], row["body"]
            if subject.startswith("Invitation: "):
                events = state.find(
                    "calendar.event", owner=row["owner"], title=subject.removeprefix("Invitation: ")
                )
                [event] = events
                day, time = event["starts"].split()
                assert day in body and time in body and event["place"] in body
                invited = {"event_id": event["id"], "email": row["recipient"]}
                [invitation] = state.find("calendar.invitation", **invited)
                replies = state.find("mail.message", answers=row["id"])
                assert len(replies) == (invitation["answer"] != "waiting")
                kinds["event"] += 1
            elif subject.startswith("Payment for "):
                paid = state.find(
                    "bank.payment",
                    payer=row["sender"],
                    payee=row["recipient"],
                    note=subject.removeprefix("Payment for "),
                )
                assert any(f" {each['amount']:.2f} " in body for each in paid)
                kinds["payment"] += 1
            elif subject.startswith("Re: Phone number of "):
                assert numbers[subject.removeprefix("Re: Phone number of ")] in body
                kinds["phone"] += 1
        assert set(kinds) == {"event", "payment", "phone"}


def test_the_first_person_of_a_small_world_alone_has_everything() -> None:
    for seed in range(5):
        state = world("small", seed)
        me = state.rows("supervisor.person")[0]["email"]
        assert 12 <= state.count("supervisor.person") <= 15
        assert 7 <= len(state.find("contacts.contact", owner=1)) <= 12
        assert 25 <= len(state.find("mail.message", owner=1)) <= 26
        invited = {row["event_id"] for row in state.find("calendar.invitation", email=me)}
        mine = {row["id"] for row in state.find("calendar.event", owner=1)}
        assert len(mine | invited) == state.count("calendar.event") == 12
        assert state.count("bank.payment", "payer = ? OR payee = ?", [me, me]) == 15
        assert [row["owner"] for row in state.rows("bank.card")] == [1, 1]


def test_everybody_of_a_medium_world_has_everything() -> None:
    state = world("medium", 0)
    for person in state.rows("supervisor.person"):
        assert len(state.find("mail.message", owner=person["id"])) >= 25
        assert len(state.find("bank.card", owner=person["id"])) == 2
        assert state.find("calendar.event", owner=person["id"])


# ── apps that nobody prepared ────────────────────────────────────────────────


def filled(text: str, seed: int = 0) -> State:
    names = ("supervisor", "contacts")
    suite = Suite.of([*map(stock_app, names), App(parse(text))])
    return State(populate(suite, "small", seed))


def test_an_unknown_app_is_filled_by_the_types_of_its_fields() -> None:
    state = filled(LIBRARY)
    for person in state.rows("supervisor.person"):
        books = state.find("library.book", owner=person["id"])
        assert 3 <= len(books) <= 4  # the blueprint's `most`, within 3 to 8
        assert 3 <= len(state.find("library.loan", owner=person["id"])) <= 8
        credentials = state.find("supervisor.credential", owner=person["id"], app="library")
        assert len(credentials) == 1
    for table in ("library.book", "library.loan", "library.shelf"):
        for row in state.rows(table):
            for name, column in state.columns[table].items():
                unset = row[name] is None and name == "renews"
                assert unset or refusal(column, row[name]) is None, (table, name, row)
    assert state.total() == state.template().total


def test_references_of_an_unknown_app_lead_to_rows_of_the_same_owner() -> None:
    state = filled(LIBRARY)
    renewed = 0
    for loan in state.rows("library.loan"):
        for field, table in (("book_id", "library.book"), ("friend_id", "contacts.contact")):
            row = state.get(table, loan[field])
            assert row is not None and row["owner"] == loan["owner"]
        assert state.get("library.shelf", loan["shelf_id"]) is not None
        if loan["renews"] is not None:
            earlier = state.get("library.loan", loan["renews"])
            assert earlier is not None and earlier["owner"] == loan["owner"]
            assert earlier["id"] < loan["id"]
            renewed += 1
    assert renewed > 0


def test_entities_that_refer_to_each_other_are_filled() -> None:
    state = filled(
        """
        app = "pairs"
        about = "Two that refer to each other."
        [entities.left]
        about = "One."
        owner = "owner"
        fields.owner = {type = "person", by = "service"}
        fields.right_id = {type = "integer", refers = "right"}
        [entities.right]
        about = "The other."
        owner = "owner"
        fields.owner = {type = "person", by = "service"}
        fields.left_id = {type = "integer", refers = "left"}
        """
    )
    assert all(row["left_id"] is None for row in state.rows("pairs.right"))
    assert all(row["right_id"] is not None for row in state.rows("pairs.left"))
    assert min(state.count("pairs.left"), state.count("pairs.right")) >= 3 * 14


def test_an_own_app_with_the_name_of_a_stock_app_is_filled_as_unknown() -> None:
    text = 'app = "mail"\nabout = "Parcels."\n[entities.parcel]\nabout = "A parcel."\n'
    text += (
        'owner = "owner"\nfields.owner = {type = "person", by = "service"}\nfields.size = "text"\n'
    )
    assert filled(text).count("mail.parcel") >= 3 * 14


def test_a_suite_of_some_apps_mentions_nothing_of_others() -> None:
    suite = Suite.of([stock_app("supervisor"), stock_app("mail")])
    state = State(populate(suite, "small", 0))
    subjects = {row["subject"].split()[0] for row in state.rows("mail.message")}
    assert not subjects & {"Invitation:", "Payment"}


@pytest.mark.parametrize("seed", range(10))
def test_generated_apps_are_filled(seed: int) -> None:
    app = generated_app(seed)
    suite = Suite.of([*SUITE.apps.values(), app])
    state = State(populate(suite, "small", seed))
    for entity, made in app.blueprint.entities.items():
        for person in range(1, 15):
            rows = state.find(f"{app.name}.{entity}", owner=person)
            assert 3 <= len(rows) <= 8
            for row in rows:
                assert all(refusal(made.fields[name], row[name]) is None for name in made.fields)
