"""The stock apps: how many there are, and what their verbs do and refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.setting import life, office
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock import VERBS, stock_app
from palaestra.environments.families.apps.world import World

ME, OTHER = 1, 2


@pytest.fixture
def home() -> Iterator[World]:
    world = World(life().suite, world_template(life().suite, "small", 0), START)
    yield world
    world.close()


@pytest.fixture
def company() -> Iterator[World]:
    world = World(office().suite, world_template(office().suite, "small", 0), START)
    yield world
    world.close()


def done(world: World, api: str, person: int = ME, **given: Any) -> Any:
    """The answer to a call that is not refused."""
    reply = world.call(api, given, person)
    assert reply.ok, reply
    return reply.body


def refused(world: World, api: str, person: int = ME, **given: Any) -> int:
    """The status of a call that is refused and leaves no trace."""
    before = world.key()
    reply = world.call(api, given, person)
    assert not reply.ok
    assert world.key() == before
    return reply.status


def one(world: World, table: str, **equal: Any) -> Row:
    return world.state.find(table, **equal)[0]


def email(world: World, person: int) -> str:
    return str(one(world, "supervisor.person", id=person)["email"])


def test_there_are_many_services_of_which_few_lines_are_written_by_hand() -> None:
    apps = [stock_app(name) for name in VERBS]
    assert len(apps) >= 12
    assert sum(len(app.apis) for app in apps) >= 150
    assert sum(len(app.verbs) for app in apps) <= 60


# ── who may read ─────────────────────────────────────────────────────────────


def test_only_who_is_in_a_room_reads_it(home: World) -> None:
    room = done(home, "chat.create_room", name="Secret")["id"]
    message = done(home, "chat.create_message", room_id=room, text="The word is plum.")
    assert message["sender"] == email(home, ME)
    search = {"query": "plum"}
    assert done(home, "chat.search_messages", person=OTHER, **search)["total"] == 0
    assert refused(home, "chat.create_message", person=OTHER, room_id=room, text="Hi") == 422
    assert refused(home, "chat.add_member", person=OTHER, room_id=room, email="a@b.example") == 404
    done(home, "chat.add_member", room_id=room, email=email(home, OTHER))
    assert refused(home, "chat.add_member", room_id=room, email=email(home, OTHER)) == 409
    assert done(home, "chat.search_messages", person=OTHER, **search)["total"] == 1
    done(home, "chat.create_reaction", person=OTHER, message_id=message["id"], sign="heart")
    assert done(home, "chat.list_reactions", message_id=message["id"])["total"] == 1
    assert refused(home, "chat.delete_message", person=OTHER, message_id=message["id"]) == 403
    done(home, "chat.leave_room", person=OTHER, room_id=room)
    assert done(home, "chat.search_messages", person=OTHER, **search)["total"] == 0
    assert refused(home, "chat.leave_room", room_id=room) == 409


def test_a_file_is_read_by_who_it_is_shared_with_and_changed_by_its_owner(home: World) -> None:
    folder = done(home, "files.create_folder", name="Mine")["id"]
    file = done(home, "files.create_file", folder_id=folder, name="a.txt", text="one")["id"]
    assert refused(home, "files.show_file", person=OTHER, file_id=file) == 404
    share = done(home, "files.share_file", file_id=file, email=email(home, OTHER))["share_id"]
    assert refused(home, "files.share_file", file_id=file, email=email(home, OTHER)) == 409
    assert refused(home, "files.share_file", file_id=file, email=email(home, ME)) == 404
    assert done(home, "files.show_file", person=OTHER, file_id=file)["text"] == "one"
    assert refused(home, "files.append_to_file", person=OTHER, file_id=file, line="x") == 403
    assert done(home, "files.append_to_file", file_id=file, line="two")["lines"] == 2
    target = done(home, "files.create_folder", person=OTHER, name="Theirs")["id"]
    given = {"file_id": file, "folder_id": target, "name": "b.txt"}
    copy = done(home, "files.copy_file", person=OTHER, **given)["file_id"]
    assert refused(home, "files.copy_file", person=OTHER, **given) == 409
    assert done(home, "files.show_file", person=OTHER, file_id=copy)["text"] == "one\ntwo"
    assert refused(home, "files.delete_file", file_id=file) == 409  # it is shared
    done(home, "files.delete_share", share_id=share)
    assert refused(home, "files.show_file", person=OTHER, file_id=file) == 404


SHARED = """
app = "a"
about = "An app."
[entities.box]
about = "A box."
owner = "owner"
{box}
fields.owner = {{type = "person", by = "service"}}
fields.lid_id = {{type = "integer", refers = "lid"}}
fields.size = "integer"
[entities.lid]
about = "A lid."
owner = "owner"
{lid}
fields.owner = {{type = "person", by = "service"}}
fields.box_id = {{type = "integer", refers = "box"}}
"""


@pytest.mark.parametrize(
    ("box", "lid", "reason"),
    [
        ('within = "size"', "", "must refer to an entity"),
        ('within = "lid_id"', 'within = "box_id"', "and not in it"),
        ('shared = "hat"', "", "is no entity"),
        ('shared = "lid"', "", "needs `readers`"),
    ],
)
def test_a_contradiction_about_who_may_read_is_named(box: str, lid: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse(SHARED.format(box=box, lid=lid))


def test_an_entity_whose_rows_hide_the_number_of_pages_is_refused() -> None:
    with pytest.raises(InputError, match="plural"):
        parse(SHARED.format(box="", lid="").replace("lid", "page"))


# ── money ────────────────────────────────────────────────────────────────────


def test_a_request_is_settled_or_declined_once_and_by_who_is_asked(home: World) -> None:
    mine = {"payer": email(home, OTHER), "amount": 12.5, "note": "tea"}
    request = done(home, "payments.request_money", **mine)["request_id"]
    before = one(home, "payments.wallet", owner=ME)["balance"]
    assert refused(home, "payments.settle_request", request_id=request) == 403
    assert refused(home, "payments.settle_request", person=3, request_id=request) == 404
    done(home, "payments.settle_request", person=OTHER, request_id=request)
    assert one(home, "payments.wallet", owner=ME)["balance"] == before + 12.5
    assert refused(home, "payments.decline_request", person=OTHER, request_id=request) == 409
    assert refused(home, "payments.withdraw_request", request_id=request) == 409
    other = done(home, "payments.request_money", **mine)["request_id"]
    done(home, "payments.decline_request", person=OTHER, request_id=other)
    third = done(home, "payments.request_money", **mine)["request_id"]
    done(home, "payments.withdraw_request", request_id=third)
    assert refused(home, "payments.settle_request", person=OTHER, request_id=third) == 409
    given = {"payee": email(home, OTHER), "amount": 1e6}
    assert refused(home, "payments.pay_person", **given) == 409
    assert refused(home, "payments.pay_person", **given | {"amount": -1}) == 422


def test_a_bill_is_split_into_equal_shares_of_whole_cents(home: World) -> None:
    others = [email(home, 2), email(home, 3)]
    given = {"payers": others, "total": 100.0, "note": "boat"}
    assert done(home, "payments.split_bill", **given)["share"] == 33.33
    asked = home.state.find("payments.request", owner=ME, note="boat")
    assert [(row["payer"], row["amount"]) for row in asked] == [(who, 33.33) for who in others]
    assert refused(home, "payments.split_bill", **given | {"payers": others[:1] * 2}) == 422
    nobody = [*others[:1], "nobody@b.example"]
    assert refused(home, "payments.split_bill", **given | {"payers": nobody}) == 404


def test_an_order_moves_money_and_stock_and_a_return_moves_money_back(home: World) -> None:
    card = one(home, "bank.card", owner=ME, status="active")
    product = home.state.rows("shop.product")[0]

    def balance() -> float:
        return float(one(home, "bank.account", id=card["account_id"])["balance"])

    def stock() -> int:
        return int(one(home, "shop.product", id=product["id"])["stock"])

    before, there, cost = balance(), stock(), round(2 * product["price"], 2)
    assert refused(home, "shop.checkout", card_id=card["id"]) == 409  # an empty cart
    done(home, "shop.create_cart_item", product_id=product["id"], quantity=2)
    assert refused(home, "shop.checkout", card_id=99) == 404
    order = done(home, "shop.checkout", card_id=card["id"])["order_id"]
    assert (balance(), stock()) == (round(before - cost, 2), there - 2)
    assert not home.state.rows("shop.cart_item")
    line = one(home, "shop.line", order_id=order)
    back = {"line_id": line["id"], "reason": "late"}
    assert refused(home, "shop.return_product", **back) == 409  # not delivered yet
    assert refused(home, "shop.cancel_order", person=OTHER, order_id=order) == 404
    done(home, "shop.cancel_order", order_id=order)
    assert (balance(), stock()) == (before, there)
    assert refused(home, "shop.cancel_order", order_id=order) == 409
    home.state.update("shop.order", order, {"status": "delivered"})
    assert done(home, "shop.return_product", **back)["amount"] == cost
    assert balance() == round(before + cost, 2)
    assert refused(home, "shop.return_product", **back) == 409


def test_a_card_pays_within_its_limit_and_its_account_while_it_is_active(home: World) -> None:
    card = one(home, "bank.card", owner=ME, status="active")
    hotel = home.state.rows("travel.hotel")[0]
    given = {"hotel_id": hotel["id"], "arrival": "2026-03-20", "nights": 1, "card_id": card["id"]}
    assert refused(home, "travel.book_hotel", **given | {"arrival": "2026-02-20"}) == 422
    assert refused(home, "travel.book_hotel", **given | {"arrival": "soon"}) == 422
    assert refused(home, "travel.book_hotel", person=OTHER, **given) == 404
    home.state.update("bank.card", card["id"], {"daily_limit": hotel["price"] - 1})
    assert refused(home, "travel.book_hotel", **given) == 409
    home.state.update("bank.card", card["id"], {"daily_limit": 1000.0, "status": "frozen"})
    assert refused(home, "travel.book_hotel", **given) == 409
    home.state.update("bank.card", card["id"], {"status": "active"})
    before = one(home, "bank.account", id=card["account_id"])["balance"]
    home.state.update("bank.account", card["account_id"], {"balance": 1.0})
    assert refused(home, "travel.book_hotel", **given) == 409
    home.state.update("bank.account", card["account_id"], {"balance": before})
    stay = done(home, "travel.book_hotel", **given)["stay_id"]
    done(home, "travel.cancel_stay", stay_id=stay)
    assert one(home, "bank.account", id=card["account_id"])["balance"] == before
    assert refused(home, "travel.cancel_stay", stay_id=stay) == 409


def test_seats_are_taken_and_come_back_until_the_trip_leaves(home: World) -> None:
    card = one(home, "bank.card", owner=ME, status="active")
    home.state.update("bank.card", card["id"], {"daily_limit": 5000.0})
    trip = home.state.rows("travel.trip")[0]
    given = {"trip_id": trip["id"], "card_id": card["id"], "seats": 3}
    booking = done(home, "travel.book_trip", **given)["booking_id"]
    assert one(home, "travel.trip", id=trip["id"])["seats"] == trip["seats"] - 3
    done(home, "travel.cancel_booking", booking_id=booking)
    assert one(home, "travel.trip", id=trip["id"])["seats"] == trip["seats"]
    booking = done(home, "travel.book_trip", **given)["booking_id"]
    home.state.update("travel.trip", trip["id"], {"departs": START})
    assert refused(home, "travel.cancel_booking", booking_id=booking) == 409
    assert refused(home, "travel.book_trip", **given) == 409
    assert refused(home, "travel.book_trip", **given | {"seats": 10}) == 422


# ── notes and the company ────────────────────────────────────────────────────


def test_a_note_grows_and_a_list_forgets_what_is_done(home: World) -> None:
    note = one(home, "notes.note", owner=ME)
    text = done(home, "notes.append_to_note", note_id=note["id"], text="More.")["text"]
    assert text == f"{note['text']}\nMore."
    assert refused(home, "notes.append_to_note", note_id=note["id"], text="x" * 1000) == 422
    assert refused(home, "notes.append_to_note", person=OTHER, note_id=note["id"], text="x") == 404
    checklist = done(home, "notes.create_checklist", name="New")["id"]
    for text, ready in (("a", True), ("b", False), ("c", True)):
        done(home, "notes.create_item", checklist_id=checklist, text=text, done=ready)
    assert done(home, "notes.clear_done_items", checklist_id=checklist)["deleted"] == 2
    left = home.state.find("notes.item", checklist_id=checklist)
    assert [item["text"] for item in left] == ["b"]


def test_a_ticket_is_handed_to_colleagues_and_closed_with_a_comment(company: World) -> None:
    project = company.state.rows("tracker.project")[0]["id"]
    made = done(company, "tracker.create_ticket", project_id=project, title="Mend the gate")
    ticket = made["id"]
    assert (made["status"], made["reporter"], made["assignee"]) == (
        "open",
        *[email(company, ME)] * 2,
    )
    mine = email(company, ME).partition("@")[2]
    people = [row["email"] for row in company.state.rows("supervisor.person")]
    colleague = next(p for p in people[1:] if p.endswith(f"@{mine}"))
    stranger = next(p for p in people if not p.endswith(f"@{mine}"))
    assert refused(company, "tracker.assign_ticket", ticket_id=ticket, email=stranger) == 404
    done(company, "tracker.assign_ticket", ticket_id=ticket, email=colleague)
    done(company, "tracker.start_ticket", ticket_id=ticket)
    assert refused(company, "tracker.start_ticket", ticket_id=ticket) == 409
    assert refused(company, "tracker.close_ticket", ticket_id=ticket, text="") == 422
    done(company, "tracker.close_ticket", ticket_id=ticket, text="It closes now.")
    assert one(company, "tracker.comment", ticket_id=ticket)["text"] == "It closes now."
    assert refused(company, "tracker.close_ticket", ticket_id=ticket, text="Again") == 409
    done(company, "tracker.reopen_ticket", ticket_id=ticket)
    assert one(company, "tracker.ticket", id=ticket)["status"] == "open"


def test_an_article_is_edited_and_brought_back(company: World) -> None:
    article = done(company, "wiki.create_article", title="Bees", text="Old. Hive. Old.")["id"]
    given = {"article_id": article, "old": "Old.", "new": "New."}
    assert refused(company, "wiki.edit_article", **given) == 409  # it occurs twice
    made = done(company, "wiki.edit_article", **given | {"old": "Hive.", "new": "Comb."})
    done(company, "wiki.append_to_article", person=OTHER, article_id=article, line="End.")
    row = one(company, "wiki.article", id=article)
    assert (row["text"], row["editor"]) == ("Old. Comb. Old.\nEnd.", email(company, OTHER))
    done(company, "wiki.restore_revision", revision_id=made["revision_id"])
    assert one(company, "wiki.article", id=article)["text"] == "Old. Hive. Old."


def test_a_change_is_merged_when_its_last_review_approves_of_it(company: World) -> None:
    file = company.state.rows("repository.file")[0]["id"]
    change = done(company, "repository.create_change", title="Better")["id"]
    done(company, "repository.create_edit", change_id=change, file_id=file, text="better")
    review = {"change_id": change, "verdict": "approve"}
    assert refused(company, "repository.review_change", **review) == 403  # its author
    assert refused(company, "repository.merge_change", change_id=change) == 409
    done(company, "repository.review_change", person=OTHER, **review)
    done(company, "repository.review_change", person=3, **review | {"verdict": "reject"})
    assert refused(company, "repository.merge_change", change_id=change) == 409
    assert refused(company, "repository.close_change", person=OTHER, change_id=change) == 403
    done(company, "repository.review_change", person=3, **review)
    assert done(company, "repository.merge_change", change_id=change)["files"] == 1
    assert one(company, "repository.file", id=file)["text"] == "better"
    assert refused(company, "repository.close_change", change_id=change) == 409
