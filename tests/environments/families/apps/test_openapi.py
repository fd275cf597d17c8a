"""What an app says of itself is a valid OpenAPI document, and what it answers is what it says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from palaestra.core.tool import Tool, random_call
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.openapi import (
    api_documentation,
    documentation,
    errors,
    openapi,
)
from palaestra.environments.families.apps.generated import generated_app
from palaestra.environments.families.apps.population import START, populate
from palaestra.environments.families.apps.stock import stock_app, stock_suite
from palaestra.environments.families.apps.world import World

STOCK = stock_suite()
APPS = [*STOCK.apps.values(), *map(generated_app, range(10))]
by_app = pytest.mark.parametrize("app", APPS, ids=lambda app: str(app.name))


def world_of(app: App) -> World:
    suite = STOCK if app.name in STOCK.apps else Suite.of([*STOCK.apps.values(), app])
    return World(suite, populate(suite, "small", 1), START)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        assert list(item) == ["post"]
        yield path, item["post"]


def body_of(part: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = part["content"]["application/json"]["schema"]
    return schema


@by_app
def test_the_document_has_the_form_of_openapi_3_1(app: App) -> None:
    document = json.loads(json.dumps(openapi(app)))
    assert document["openapi"] == "3.1.0"
    assert {"title", "version"} <= document["info"].keys()
    assert all(type(document["info"][key]) is str for key in ("title", "version"))
    names = []
    for path, operation in operations(document):
        assert path == f"/{operation['operationId']}"
        names.append(operation["operationId"])
        request = body_of(operation["requestBody"])
        Draft202012Validator.check_schema(request)
        assert request["type"] == "object"
        assert set(request.get("required", ())) <= set(request["properties"])
        for status, response in operation["responses"].items():
            assert 100 <= int(status) < 600 and response["description"]
            schema = body_of(response)
            if int(status) == 200:
                Draft202012Validator.check_schema(schema)
            else:
                root, section, kind, name = schema["$ref"].split("/")
                assert root == "#" and name in document[section][kind]
    assert names == list(app.apis)


@by_app
def test_what_reading_answers_is_what_the_document_says(app: App) -> None:
    world = world_of(app)
    answered = 0
    for path, operation in operations(openapi(app)):
        api = app.apis[path.removeprefix("/")]
        if api.changes or api.name == "login":
            continue
        assert api.returns, api.full_name
        given: dict[str, Any] = {}
        for name in api.parameters.get("required", ()):
            entity = name.removesuffix("_id")
            own = f"{app.name}.{entity}" in world.state.columns
            given[name] = world.state.find(f"{app.name}.{entity}", owner=1)[0]["id"] if own else "a"
        reply = world.call(api.full_name, given, person=1)
        assert reply.ok, reply
        schema = body_of(operation["responses"]["200"])
        complete(schema).validate(reply.body)
        answered += 1
    assert answered


def complete(schema: dict[str, Any]) -> Draft202012Validator:
    """A validator by which objects have exactly the named properties."""

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(each) for each in part]
        if not isinstance(part, dict):
            return part
        inner = {key: strict(value) for key, value in part.items()}
        if part.get("type") == "object":
            inner |= {"additionalProperties": False, "required": list(part["properties"])}
        return inner

    return Draft202012Validator(strict(schema))


def test_what_changes_answer_is_what_the_document_says() -> None:
    world = World(STOCK, populate(STOCK, "small", 1), START)
    contacts = world.state.find("contacts.contact", owner=1)
    email = contacts[0]["email"]
    inbox = world.state.find("mail.message", owner=1, folder="inbox")[0]
    invitation = world.state.find(
        "calendar.invitation", email=world.state.rows("supervisor.person")[0]["email"]
    )[0]
    card = world.state.find("bank.card", owner=1, status="active")[0]
    message = {"subject": "Hello", "body": "How are you?"}
    event = {"title": "Walk", "starts": "2026-03-09 10:00"}
    calls = {
        "bank.send_money": {"payee": email, "amount": 2.5},
        "bank.move_money": {"amount": 10, "source": "checking", "target": "savings"},
        "bank.update_card": {"card_id": card["id"], "status": "frozen"},
        "calendar.create_event": event,
        "calendar.invite": {"event_id": world.state.count("calendar.event") + 1, "email": email},
        "calendar.answer_invitation": {"invitation_id": invitation["id"], "answer": "declined"},
        "contacts.update_contact": {"contact_id": contacts[0]["id"], "phone": "555-0000"},
        "contacts.delete_contact": {"contact_id": contacts[1]["id"]},
        "contacts.create_contact": {"name": "Zed", "email": "zed@postbox.example"},
        "mail.send_message": {"recipient": email} | message,
        "mail.reply_message": {"message_id": inbox["id"], "body": "Yes."},
        "mail.forward_message": {"message_id": inbox["id"], "recipient": email},
        "mail.update_message": {"message_id": inbox["id"], "read": True},
    }
    for name, given in calls.items():
        reply = world.call(name, given, person=1)
        assert reply.ok, (name, reply)
        complete(dict(STOCK.apis[name].returns)).validate(reply.body)


@by_app
def test_refusals_have_the_statuses_that_the_document_names(app: App) -> None:
    rng = random.Random(app.name)
    world = world_of(app)
    start = world.snapshot()
    seen = set()
    for api in app.apis.values():
        tool = Tool(api.name, api.about, api.parameters)
        for number in range(25):
            given = dict(random_call([tool], rng).arguments)
            for name in given:
                if name.endswith("_id"):
                    given[name] = rng.randint(1, 40)
            spoilt = {0: {"unheard_of": 1}, 1: {"access_token": "wrong"}}.get(number, {})
            reply = world.call(api.full_name, given | spoilt, person=1)
            assert reply.status == 200 or reply.status in errors(app, api), (api, given, reply)
            seen.add(reply.status)
        world.restore(start)
    assert {200, 400, 401} <= seen


def test_documentation_has_all_apis_and_what_holds_for_all() -> None:
    for app in APPS:
        text = documentation(app)
        assert all(f"\n{api.full_name}(" in text for api in app.apis.values())
        assert ("login" in text) is app.blueprint.private
        assert ("429" in text) is (app.blueprint.changes_per_minute is not None)


def test_documentation_of_a_verb() -> None:
    assert api_documentation(stock_app("bank").apis["send_money"]).splitlines() == [
        'bank.send_money(payee, amount, note="", account="checking")',
        "Send money to a person.",
        "- payee: string, an email address",
        "- amount: number",
        "- note: string",
        '- account: "checking" or "savings"',
        "Returns {payment_id: integer, amount: number}.",
        "Errors: 404: nobody else has that address; 409: the balance is too low.",
    ]


def test_documentation_of_endpoints() -> None:
    apis = stock_app("calendar").apis
    row = "{id: integer, title: string, starts: string, minutes: integer, place: string}"
    assert api_documentation(apis["create_event"]).splitlines() == [
        'calendar.create_event(title, starts, minutes=60, place="")',
        "Make an event.",
        "- title: string, at least 1 and at most 80 characters",
        "- starts: string, time, such as 2026-03-31 14:30",
        "- minutes: integer, at least 5 and at most 1440",
        "- place: string, at most 80 characters",
        f"Returns {row}.",
    ]
    assert api_documentation(apis["search_events"]).splitlines() == [
        "calendar.search_events(query, [page], [per_page])",
        "Search events by title, place.",
        "- query: string, words that must all occur, at most 200 characters",
        "- page: integer",
        "- per_page: integer",
        f"Returns {{events: [{row}, ...], page: integer, pages: integer, total: integer}}.",
    ]
