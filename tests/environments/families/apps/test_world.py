"""A world answers bad calls as a service would, with a status and a sentence, and stays intact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.compiler.login import token
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock import stock_app, stock_suite
from palaestra.environments.families.apps.world import LARGEST, World

SUITE = stock_suite()
ME, OTHER = 1, 2
PLANTS = """
app = "plants"
about = "Plants, and the pots they are in."
changes_per_minute = 5

[entities.pot]
about = "A pot."
owner = "owner"
unique = [["name"]]
search = ["name"]
most = 4
moves.state = {new = ["used"], used = ["broken", "new"]}
fields.owner = {type = "person", by = "service"}
fields.name = {type = "text", most = 20}
fields.state = {type = "choice", choices = ["new", "used", "broken"], default = "new"}
fields.price = {type = "money", least = 0, default = 1}
fields.made = {type = "date", by = "service"}
fields.lot = {type = "integer", fixed = true, default = 7}

[entities.plant]
about = "A plant."
owner = "owner"
fields.owner = {type = "person", by = "service"}
fields.pot_id = {type = "integer", refers = "pot"}
fields.name = "text"
"""


@verb
def break_all(call: Caller, name: str) -> Row:
    """Break the pots, and fail."""
    for pot in call.state.find("plants.pot", owner=call.person):
        call.state.update("plants.pot", pot["id"], {"state": "broken"})
        call.state.insert("plants.plant", {"owner": call.person, "name": name})
    raise ApiError(409, "It cannot be done.")


@reading
def count_pots(call: Caller, more: list[int]) -> Row:
    """Count pots."""
    return {"pots": call.state.count("plants.pot") + sum(more)}


@pytest.fixture
def world() -> Iterator[World]:
    opened = World(SUITE, world_template(SUITE, "small", 0), START)
    yield opened
    assert opened.state.total() == opened.state.template().total
    opened.close()


@pytest.fixture
def pots() -> Iterator[World]:
    """A world with an app of plants, in which nobody has any."""
    app = App(parse(PLANTS), (break_all, count_pots))
    suite = Suite.of([stock_app("supervisor"), app])
    opened = World(suite, suite.empty(), START)
    yield opened
    assert opened.state.total() == opened.state.template().total
    opened.close()


def make(world: World, name: str, person: int = ME, **more: object) -> int:
    reply = world.call("plants.create_pot", {"name": name} | more, person=person)
    assert reply.ok, reply
    return int(reply.body["id"])


def refused(
    world: World, status: int, says: str, api: str, given: dict[str, Any], person: int = ME
) -> None:
    """Assert that a call is refused with that status, and changes nothing."""
    before, changes = world.key(), world.state.changes()
    reply = world.call(api, given, person=person)
    assert (reply.status, list(reply.body)) == (status, ["error"]), reply
    assert says in reply.body["error"]
    assert world.key() == before and world.state.changes() == changes
    assert world.calls[-1].api == api and world.calls[-1].status == status


# ── who calls ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("api", "table"),
    [
        ("mail.show_message", "mail.message"),
        ("mail.delete_message", "mail.message"),
        ("contacts.update_contact", "contacts.contact"),
        ("bank.show_account", "bank.account"),
    ],
)
def test_a_row_of_somebody_else_is_not_there(world: World, api: str, table: str) -> None:
    foreign = world.state.find(table, owner=OTHER)[0]["id"]
    key = f"{table.partition('.')[2]}_id"
    more = {"phone": "555-0000"} if "update" in api else {}
    refused(world, 404, f"with the id {foreign}", api, {key: foreign} | more)
    refused(world, 404, "with the id 99999", api, {key: 99999} | more)


def test_lists_and_searches_have_only_what_one_may_read(world: World) -> None:
    for api, table in (
        ("mail.list_messages", "mail.message"),
        ("bank.list_accounts", "bank.account"),
    ):
        total = world.call(api, {}, person=OTHER).body["total"]
        assert 0 < total == len(world.state.find(table, owner=OTHER)) < world.state.count(table)
    found = world.call("contacts.search_contacts", {"query": "@"}, person=OTHER)
    assert found.body["total"] == len(world.state.find("contacts.contact", owner=OTHER))


def test_readers_read_what_they_cannot_change(world: World) -> None:
    me = world.state.get("supervisor.person", ME)
    assert me is not None
    row = world.state.find("calendar.invitation", email=me["email"])[0]
    given = {"invitation_id": row["id"]}
    assert world.call("calendar.show_invitation", given, person=ME).ok
    refused(world, 403, "not yours", "calendar.delete_invitation", given)
    stranger = next(
        id
        for id in range(2, 15)
        if id != row["owner"]
        and world.state.get("supervisor.person", id)
        and not world.call("calendar.show_invitation", given, person=id).ok
    )
    refused(world, 404, "no invitation", "calendar.show_invitation", given, person=stranger)


def test_nobody_in_particular_is_asked_to_sign_in(world: World) -> None:
    refused(world, 401, "mail.login", "mail.list_messages", {}, person=0)
    for wrong in ("", "abc", 7, [], "\ud800"):
        for person in (0, ME):
            given = {"access_token": wrong}
            refused(world, 401, "not valid", "mail.list_messages", given, person=person)


def test_a_token_of_another_app_is_not_valid(world: World) -> None:
    row = world.state.find("supervisor.credential", owner=ME, app="bank")[0]
    given = {"access_token": token(row)}
    assert world.call("bank.list_accounts", given).ok
    refused(world, 401, "not valid for 'mail'", "mail.list_messages", given, person=0)


def test_a_password_gives_a_token_that_acts_for_its_owner(world: World) -> None:
    row = world.state.find("supervisor.credential", owner=OTHER, app="contacts")[0]
    secret = {key: row[key] for key in ("username", "password")}
    wrong = secret | {"password": "guess"}
    refused(world, 401, "wrong", "contacts.login", wrong, person=0)
    access = world.call("contacts.login", secret).body
    mine = world.call("contacts.list_contacts", access | {"per_page": 20}).body["contacts"]
    assert {each["id"] for each in mine} == {
        each["id"] for each in world.state.find("contacts.contact", owner=OTHER)
    }
    world.state.update("supervisor.credential", row["id"], {"password": "new"})
    refused(world, 401, "not valid", "contacts.list_contacts", access, person=0)


# ── what is asked for ────────────────────────────────────────────────────────

INJECTIONS = [
    '\'; DROP TABLE "mail.message"; --',
    '" OR 1=1 --',
    'x\' UNION SELECT * FROM "supervisor.credential" --',
    "%",
    "_",
    "\\",
    "nul\0nul",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_sql_in_strings_is_text(world: World, text: str) -> None:
    before = world.state.total()
    found = world.call("mail.search_messages", {"query": text}, person=ME)
    assert found.ok and found.body["total"] == 0
    listed = world.call("mail.list_messages", {"sender": text}, person=ME)
    assert listed.ok and listed.body["total"] == 0
    assert not world.call("mail.login", {"username": text, "password": text}).ok
    assert world.state.total() == before
    given = {"name": text, "email": "x@postbox.example"}
    made = world.call("contacts.create_contact", given, person=ME)
    assert made.ok and made.body["name"] == text
    assert world.state.find("contacts.contact", name=text)[0]["owner"] == ME
    found = world.call("contacts.search_contacts", {"query": text.split()[0]}, person=ME)
    assert [row["name"] for row in found.body["contacts"]] == [text]
    assert len(world.state.changes()) == 1


def test_names_of_arguments_reach_no_sql(world: World) -> None:
    given = {'sender" = "sender" OR "x': "y"}
    refused(world, 400, "is no argument of mail.list_messages", "mail.list_messages", given)


def test_10_megabytes_of_arguments_are_too_long(world: World) -> None:
    given = {"recipient": "a@b.c", "subject": "s", "body": "x" * 10_000_000}
    refused(world, 413, f"longer than {LARGEST}", "mail.send_message", given)
    refused(world, 413, "longer", "mail.list_messages", {"x" * 10_000_000: 1})


@pytest.mark.parametrize(
    ("api", "given"),
    [
        ("mail.show_message", {"message_id": "1"}),
        ("mail.show_message", {"message_id": 1.5}),
        ("mail.show_message", {"message_id": True}),
        ("mail.show_message", {"message_id": None}),
        ("mail.show_message", {"message_id": [1]}),
        ("mail.show_message", {"message_id": 10**30}),
        ("mail.search_messages", {"query": {"a": 1}}),
        ("mail.search_messages", {"query": "a " * 2000}),
        ("mail.search_messages", {"query": "a" * 60_000}),
        ("mail.search_messages", {"query": "\ud800"}),
        ("mail.list_messages", {"read": 1}),
        ("mail.list_messages", {"folder": "spam"}),
        ("mail.list_messages", {"page": 0}),
        ("mail.list_messages", {"page": 10**30}),
        ("mail.list_messages", {"per_page": 21}),
        ("contacts.create_contact", {"name": 3, "email": "a@b.c"}),
        ("contacts.create_contact", {"name": "A", "email": "no address"}),
        ("contacts.create_contact", {"name": "A" * 81, "email": "a@b.c"}),
        ("contacts.create_contact", {"name": "\ud800", "email": "a@b.c"}),
        ("calendar.create_event", {"title": "A", "starts": "tomorrow"}),
        ("calendar.create_event", {"title": "", "starts": "2026-03-02 10:00"}),
        ("calendar.create_event", {"title": "A", "starts": "2026-03-02 10:00", "minutes": 1}),
        ("bank.send_money", {"payee": "a@b.c", "amount": "5"}),
        ("bank.send_money", {"payee": "a@b.c", "amount": 5, "account": "mine"}),
    ],
)
def test_values_of_a_wrong_type_form_or_size(world: World, api: str, given: dict[str, Any]) -> None:
    refused(world, 422, "", api, given)


@pytest.mark.parametrize("amount", [0, -5, 0.001, float("nan"), float("inf")])
def test_money_that_cannot_be_sent(world: World, amount: float) -> None:
    payee = world.state.find("contacts.contact", owner=ME)[0]["email"]
    before = world.key()
    reply = world.call("bank.send_money", {"payee": payee, "amount": amount}, person=ME)
    assert reply.status in (409, 422) and world.key() == before


def test_arguments_that_are_unknown_or_missing(world: World) -> None:
    refused(world, 400, "'colour' is no argument", "mail.list_messages", {"colour": "red"})
    refused(world, 400, "needs 'message_id'", "mail.show_message", {})
    refused(world, 400, "is no argument", "contacts.create_contact", {"owner": 2})
    refused(world, 404, "no API 'mail.fly'", "mail.fly", {})
    contact = world.state.find("contacts.contact", owner=ME)[0]["id"]
    refused(world, 400, "at least one", "contacts.update_contact", {"contact_id": contact})


# ── what contradicts the state ───────────────────────────────────────────────


def test_lawful_changes(pots: World) -> None:
    pot = make(pots, "a")
    says = "'state' is new, and can become used from there"
    refused(pots, 409, says, "plants.update_pot", {"pot_id": pot, "state": "broken"})
    for state in ("new", "used", "new", "used"):
        reply = pots.call("plants.update_pot", {"pot_id": pot, "state": state}, person=ME)
        assert reply.ok and reply.body["state"] == state
    pots.seconds += 60
    assert pots.call("plants.update_pot", {"pot_id": pot, "state": "broken"}, person=ME).ok
    says = "can become nothing"
    refused(pots, 409, says, "plants.update_pot", {"pot_id": pot, "state": "used"})


def test_unique_fields(pots: World) -> None:
    make(pots, "a")
    pot = make(pots, "b")
    make(pots, "a", person=OTHER)
    refused(pots, 409, "the same name", "plants.create_pot", {"name": "a"})
    refused(pots, 409, "the same name", "plants.update_pot", {"pot_id": pot, "name": "a"})
    assert pots.call("plants.update_pot", {"pot_id": pot, "name": "b"}, person=ME).ok


def test_rows_that_others_refer_to(pots: World) -> None:
    pot = make(pots, "a")
    given = {"pot_id": pot, "name": "fern"}
    plant = pots.call("plants.create_plant", given, person=ME).body["id"]
    refused(pots, 409, "A plant refers to this pot", "plants.delete_pot", {"pot_id": pot})
    assert pots.call("plants.delete_plant", {"plant_id": plant}, person=ME).ok
    assert pots.call("plants.delete_pot", {"pot_id": pot}, person=ME).body == {"deleted": pot}
    assert pots.state.changes() == []


def test_references_to_what_is_not_ones_own(pots: World) -> None:
    foreign = make(pots, "a", person=OTHER)
    for pot in (foreign, 99):
        given = {"pot_id": pot, "name": "fern"}
        refused(pots, 422, f"'pot_id' is {pot}", "plants.create_plant", given)


def test_the_most_rows_of_an_owner(pots: World) -> None:
    for name in "abcd":
        make(pots, name)
    refused(pots, 409, "which is the most", "plants.create_pot", {"name": "e"})
    make(pots, "e", person=OTHER)


def test_fields_that_the_service_sets_or_that_are_fixed(pots: World) -> None:
    refused(
        pots, 400, "'made' is no argument", "plants.create_pot", {"name": "a", "made": "2020-01-01"}
    )
    pot = make(pots, "a", lot=3)
    refused(pots, 400, "'lot' is no argument", "plants.update_pot", {"pot_id": pot, "lot": 4})
    row = pots.state.get("plants.pot", pot)
    assert row is not None and (row["owner"], row["made"], row["lot"]) == (ME, "2026-03-02", 3)
    assert (row["state"], row["price"]) == ("new", 1)


def test_the_rate_limit_counts_the_changes_of_a_person_in_a_minute(pots: World) -> None:
    pot = make(pots, "a")
    for number in range(4):
        given = {"pot_id": pot, "price": number}
        assert pots.call("plants.update_pot", given, person=ME).ok
    refused(pots, 429, "5 changes a minute", "plants.update_pot", {"pot_id": pot, "price": 9})
    assert pots.call("plants.show_pot", {"pot_id": pot}, person=ME).ok
    make(pots, "a", person=OTHER)
    pots.seconds += 53
    refused(pots, 429, "5 changes a minute", "plants.update_pot", {"pot_id": pot, "price": 9})
    pots.seconds += 1
    assert pots.call("plants.update_pot", {"pot_id": pot, "price": 9}, person=ME).ok


def test_refused_changes_do_not_count_towards_the_rate_limit(pots: World) -> None:
    pot = make(pots, "a")
    for _ in range(10):
        refused(pots, 409, "", "plants.update_pot", {"pot_id": pot, "state": "broken"})
    assert pots.call("plants.update_pot", {"pot_id": pot, "state": "used"}, person=ME).ok


def test_a_verb_that_fails_half_way_leaves_no_trace(pots: World) -> None:
    for name in "abc":
        make(pots, name)
    rows = pots.state.rows("plants.pot")
    refused(pots, 409, "cannot be done", "plants.break_all", {"name": "fern"})
    assert pots.state.rows("plants.pot") == rows
    assert pots.state.count("plants.plant") == 0


def test_a_verb_that_reads_refuses_wrong_types(pots: World) -> None:
    refused(pots, 422, "", "plants.count_pots", {"more": ["a"]})
    refused(pots, 422, "", "plants.count_pots", {"more": [1.5]})
    assert pots.call("plants.count_pots", {"more": [1, 2]}, person=ME).body == {"pots": 3}


# ── reading ──────────────────────────────────────────────────────────────────


def test_pages_have_all_rows_once(world: World) -> None:
    mine = [row["id"] for row in world.state.find("mail.message", owner=ME)]
    for size in (1, 5, 20):
        first = world.call("mail.list_messages", {"per_page": size}, person=ME).body
        assert (first["page"], first["total"]) == (1, len(mine))
        seen = []
        for page in range(1, first["pages"] + 1):
            given = {"page": page, "per_page": size}
            body = world.call("mail.list_messages", given, person=ME).body
            seen += [row["id"] for row in body["messages"]]
        assert seen == mine
        beyond = {"page": first["pages"] + 1, "per_page": size}
        assert world.call("mail.list_messages", beyond, person=ME).body["messages"] == []


def test_an_empty_list_has_one_page(pots: World) -> None:
    body = pots.call("plants.list_pots", {}, person=ME).body
    assert body == {"pots": [], "page": 1, "pages": 1, "total": 0}


def test_filters_are_combined(world: World) -> None:
    inbox = world.state.find("mail.message", owner=ME, folder="inbox")
    sender = inbox[0]["sender"]
    given = {"folder": "inbox", "sender": sender, "per_page": 20}
    body = world.call("mail.list_messages", given, person=ME).body
    assert [row["id"] for row in body["messages"]] == [
        row["id"] for row in inbox if row["sender"] == sender
    ]
    unread = world.call("mail.list_messages", {"read": False}, person=ME).body["total"]
    assert unread == len([row for row in inbox if not row["read"]]) > 0


def test_search_finds_rows_with_all_words(world: World) -> None:
    row = world.state.find("contacts.contact", owner=ME)[2]
    first, last = row["name"].split()
    query = f"{last.upper()}  {first.lower()}"
    body = world.call("contacts.search_contacts", {"query": query}, person=ME).body
    assert [found["id"] for found in body["contacts"]] == [row["id"]]
    query = f"{first} nowhere"
    assert world.call("contacts.search_contacts", {"query": query}, person=ME).body["total"] == 0


def test_lists_leave_out_free_texts_and_owners(world: World) -> None:
    row = world.call("mail.list_messages", {}, person=ME).body["messages"][0]
    assert not {"body", "owner"} & row.keys()
    shown = world.call("mail.show_message", {"message_id": row["id"]}, person=ME).body
    assert shown.keys() - row.keys() == {"body"}


# ── verbs of the stock apps ──────────────────────────────────────────────────


def test_money_that_is_sent_is_neither_made_nor_lost(world: World) -> None:
    def all_money() -> float:
        return round(sum(row["balance"] for row in world.state.rows("bank.account")), 2)

    before, payee = all_money(), world.state.find("contacts.contact", owner=ME)[0]["email"]
    sent = world.call("bank.send_money", {"payee": payee, "amount": 12.34}, person=ME)
    assert sent.ok and all_money() == before
    payment = world.state.get("bank.payment", sent.body["payment_id"])
    assert payment is not None and (payment["payee"], payment["amount"]) == (payee, 12.34)
    refused(world, 409, "balance", "bank.send_money", {"payee": payee, "amount": 1_000_000})
    me = world.state.get("supervisor.person", ME)
    assert me is not None
    refused(world, 404, "Nobody else", "bank.send_money", {"payee": me["email"], "amount": 1})


def test_each_copy_of_a_reply_answers_its_owners_copy(world: World) -> None:
    other = world.state.get("supervisor.person", OTHER)
    assert other is not None
    given = {"recipient": other["email"], "subject": "Hello", "body": "How are you?"}
    mine = world.call("mail.send_message", given, person=ME).body["message_id"]
    theirs = world.state.find("mail.message", owner=OTHER, subject="Hello")[0]["id"]
    answer = {"message_id": theirs, "body": "Well."}
    assert world.call("mail.reply_message", answer, person=OTHER).ok
    copies = world.state.find("mail.message", subject="Re: Hello")
    assert {row["owner"]: row["answers"] for row in copies} == {ME: mine, OTHER: theirs}
    reply = next(row["id"] for row in copies if row["owner"] == ME)
    for id in (reply, mine):
        assert world.call("mail.delete_message", {"message_id": id}, person=ME).ok
    assert world.call("mail.reply_message", answer, person=OTHER).ok
    late = world.state.find("mail.message", owner=ME, subject="Re: Hello")
    assert [row["answers"] for row in late] == [None]


# ── copies ───────────────────────────────────────────────────────────────────


def test_a_snapshot_and_a_fork_go_on_as_the_world(pots: World) -> None:
    pot = make(pots, "a")
    fork, snapshot, key = pots.fork(), pots.snapshot(), pots.key()
    keys, statuses = [], []
    other = World(pots.suite, pots.suite.empty(), "2000-01-01 00:00")
    other.restore(snapshot)
    for each in (pots, fork, other):
        assert each.key() == key
        for price in range(6):
            each.call("plants.update_pot", {"pot_id": pot, "price": price}, person=ME)
        keys.append(each.key())
        statuses.append([made.status for made in each.calls])
    assert len(set(keys)) == 1 and keys[0] != key
    assert statuses == [[200] * 5 + [429] * 2] * 3
    assert fork.now == other.now == pots.now


def test_time_passes_with_changes() -> None:
    world = World(SUITE, world_template(SUITE, "small", 0), START)
    assert world.now == START
    world.call("mail.list_messages", {}, person=ME)
    assert world.seconds == 0
    world.call("contacts.create_contact", {"name": "A", "email": "a@b.c"}, person=ME)
    assert world.seconds == 1
    world.seconds = 61
    assert world.now == "2026-03-02 09:01"


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers(1, 30),
    st.floats(),
    st.text(alphabet=st.characters(), max_size=30),
    st.sampled_from(["", "inbox", "2026-03-02 10:00", "a@b.c", "checking", "'; --"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, object], int]:
    """A call with arguments some of which may fit, and who makes it."""
    name = draw(st.sampled_from(sorted(SUITE.apis)))
    parameters = SUITE.apis[name].parameters
    given = {
        argument: draw(junk)
        for argument in parameters["properties"]
        if argument in parameters.get("required", ()) or draw(st.booleans())
    }
    return name, given, draw(st.integers(0, 3))


@hypothesis.given(st.lists(calls(), max_size=8))
@hypothesis.settings(max_examples=40, deadline=None)
def test_whatever_is_called_is_answered_and_what_is_refused_changes_nothing(
    many: list[tuple[str, dict[str, object], int]],
) -> None:
    world = World(SUITE, world_template(SUITE, "small", 0), START)
    for name, arguments, person in many:
        before = world.key()
        reply = world.call(name, arguments, person=person)
        assert reply.status in (200, 400, 401, 403, 404, 409, 413, 422, 429)
        if not reply.ok:
            assert list(reply.body) == ["error"] and world.key() == before
    assert world.state.total() == world.state.template().total
    world.close()
