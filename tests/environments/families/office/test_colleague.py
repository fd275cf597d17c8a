"""A colleague's program: what they tell, to whom, what they do, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.desk.user import mentions
from palaestra.environments.families.office.colleague import Fact, stated
from palaestra.environments.families.office.colleagues_app import (
    ASK,
    COLLEAGUE,
    FACT,
    OPINION,
    fact_row,
)
from palaestra.environments.families.office.tasks import office

SUMMIT = Fact("amount", "indigo summit", "250")
BUDGET = Fact("budget", "amber ember", "7310", proof="4821", proof_label="door code of the shed")
SALARY = Fact("salary", "onyx maple", "5900", ticket="Count the chairs")
PLAN = Fact("plan", "cedar north", "", knows="Ann Other")


@pytest.fixture
def world() -> Iterator[World]:
    world = World(office().suite, world_template(office().suite, "small", 0), START, (), MAIN)
    for fact in (SUMMIT, BUDGET, SALARY, PLAN):
        world.state.insert(FACT, fact_row(ida(world)["owner"], fact))
    yield world
    world.close()


def ida(world: World) -> Row:
    """Return one of the colleagues."""
    return world.state.rows(COLLEAGUE)[0]


def ask(world: World, message: str) -> str:
    reply = world.call(ASK, {"email": ida(world)["email"], "message": message}, MAIN)
    assert reply.ok, reply
    return str(reply.body["reply"])


def changed(world: World) -> list[tuple[str, str]]:
    """Return the rows that the agent has changed, of all apps."""
    return [(one.table, one.kind) for one in world.state.changes()]


def test_a_fact_is_told_to_whoever_asks_for_it_and_only_that_one(world: World) -> None:
    reply = ask(world, "Could you tell me the sum for the indigo summit?")
    assert stated(reply, SUMMIT.label) == "250"
    assert not any(fact.value and fact.value in reply for fact in (BUDGET, SALARY))
    assert "250" not in ask(world, "What is the amount?")  # of what?


def test_of_two_facts_about_one_thing_the_one_that_is_named_is_told(world: World) -> None:
    world.state.insert(FACT, fact_row(ida(world)["owner"], Fact("date", "indigo summit", "11 May")))
    assert stated(ask(world, "The date for the indigo summit?"), "date for the indigo summit")
    assert "11 May" not in ask(world, "The amount for the indigo summit?")


def test_a_proof_is_wanted_first_and_remembered(world: World) -> None:
    question = "What is the budget for the amber ember?"
    for message in (question, f"{question} The door code is 4822."):
        reply = ask(world, message)
        assert BUDGET.proof_label in reply and BUDGET.value not in reply
    assert BUDGET.value not in ask(world, "The door code of the shed is 4821.")
    assert stated(ask(world, question), BUDGET.label) == BUDGET.value


def test_only_the_assignee_of_a_ticket_is_told_what_is_for_them(world: World) -> None:
    question = "What is the salary for the onyx maple?"
    assert SALARY.ticket in (reply := ask(world, question)) and SALARY.value not in reply
    ticket = world.state.rows("tracker.ticket")[0]
    me = world.state.get("supervisor.person", MAIN) or {}
    changes = {"title": SALARY.ticket, "assignee": me["email"]}
    world.state.update("tracker.ticket", ticket["id"], changes)
    assert stated(ask(world, question), SALARY.label) == SALARY.value


def test_who_knows_is_named_by_whoever_does_not(world: World) -> None:
    assert "Ann Other" in ask(world, "What is the plan for the cedar north?")


def test_opinions_are_told_when_asked_whether_to_go_ahead(world: World) -> None:
    for subject, agrees in (("the red door", True), ("the blue door", False)):
        row = {"owner": ida(world)["owner"], "subject": subject, "agrees": agrees}
        world.state.insert(OPINION, row)
    assert ask(world, "May I paint the red door?").startswith(("Yes", "Well. Yes"))
    assert ask(world, "Shall I paint the blue door?").startswith(("No", "Well. No"))
    assert ask(world, "May I paint the red door and the blue door?").startswith(("No", "Well. No"))
    assert "es, " not in ask(world, "I painted the red door.")


def test_a_change_is_approved_in_the_name_of_whoever_is_asked_and_once(world: World) -> None:
    me = ida(world)["owner"]
    change = next(
        row
        for row in world.state.find("repository.change", status="open")
        if row["owner"] != me
        and not world.state.find("repository.review", change_id=row["id"], owner=me)
    )
    before = len(world.state.rows("repository.review"))
    ask(world, f"Please approve '{change['title']}'.")
    review = world.state.rows("repository.review")[-1]
    assert (review["owner"], review["change_id"], review["verdict"]) == (
        me,
        change["id"],
        "approve",
    )
    ask(world, f"Would you review {change['title']} again?")
    assert len(world.state.rows("repository.review")) == before + 1


def test_nobody_approves_a_change_of_their_own_or_changes_a_ticket_of_others(world: World) -> None:
    me, before = ida(world)["owner"], changed(world)
    own = [r for r in world.state.find("repository.change", status="open") if r["owner"] == me]
    others = [row for row in world.state.rows("tracker.ticket") if row["owner"] != me]
    for message in (
        *(f"Please approve '{row['title']}'." for row in own),
        *(f"Give '{row['title']}' high priority, please." for row in others),
    ):
        ask(world, message)
    assert changed(world) == before


def test_one_thing_at_a_time(world: World) -> None:
    me, before = ida(world)["owner"], changed(world)
    own = [row for row in world.state.rows("tracker.ticket") if row["owner"] == me]
    priorities = "high priority, or rather low"
    assert "one thing" in ask(world, f"Give the ticket '{own[0]['title']}' {priorities}.")
    assert changed(world) == before


def test_what_is_said_changes_no_row_that_counts_but_the_key(world: World) -> None:
    before, key = changed(world), world.key()
    ask(world, "How are you?")
    assert changed(world) == before and world.key() != key


@pytest.mark.parametrize(
    ("email", "message", "status"),
    [
        ("nobody@nowhere.example", "Hello", 404),
        ("ME", "Hello", 404),
        ("' OR 1=1; DROP TABLE x; --", "Hello", 404),
        ("IDA", " \n ", 422),
        ("IDA", "x" * 2_001, 422),
        ("IDA", 5, 422),
        (None, "Hello", 422),
    ],
)
def test_bad_messages_are_answered_as_by_a_service(world: World, email, message, status) -> None:
    me = (world.state.get("supervisor.person", MAIN) or {})["email"]
    address = {"ME": me, "IDA": ida(world)["email"]}.get(email, email)
    key = world.key()
    assert world.call(ASK, {"email": address, "message": message}, MAIN).status == status
    assert world.key() == key


TOPICS = [fact.topic for fact in (SUMMIT, BUDGET, SALARY, PLAN)]
WORDS = st.sampled_from(
    [
        *TOPICS,
        "amount",
        "budget",
        "4821",
        "May I",
        "priority",
        "high",
        "approve",
        "'",
        "%",
        "é",
        "(",
    ]
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), max_size=3))
def test_nothing_is_told_unasked_or_to_the_wrong_one_whatever_is_said(
    world: World, messages: list[str]
) -> None:
    fork = world.fork()
    before, said = changed(fork), ""
    for message in messages:
        said += f" {message}"
        reply = ask(fork, message)
        for fact in (SUMMIT, BUDGET, SALARY):
            if mentions(reply, fact.value):
                assert fact.topic in message and not fact.ticket
                assert not fact.proof or fact.proof in said
        assert mentions(reply, BUDGET.proof) is False
    assert changed(fork) == before  # none of the messages names a row of an app
    other = world.fork()
    assert [ask(other, message) for message in messages] == [
        row["reply"] for row in fork.state.rows("colleagues.exchange")
    ]
    for one in (fork, other):
        one.close()
