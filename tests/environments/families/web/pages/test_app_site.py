from __future__ import annotations

import random
from typing import Any

import pytest

from palaestra.core.task import Split, TaskSet
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN, Steps
from palaestra.environments.families.apps.drawing import Drawn, drawn
from palaestra.environments.families.apps.population import START, populate
from palaestra.environments.families.apps.setting import SETTINGS
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.web.pages.app_site import AppSite
from palaestra.environments.families.web.pages.following import Fill, Open, Send, steps_of
from palaestra.environments.families.web.pages.look import LANGUAGES, WORDS, Look
from tests.environments.families.web.pages.form_client import FormClient

LOOK = Look.drawn(random.Random(1))


def site(app: str, look: Look = LOOK, seed: int = 3) -> AppSite:
    suite = stock_suite(("bank", "calendar", "contacts", "mail", "supervisor"))
    world = World(suite, populate(suite, "small", seed), START)
    return AppSite(world, suite.apps[app], MAIN, look, ())


class OnPages:
    """A world that is used through its pages, and a copy that is used through calls."""

    def __init__(self, made: Drawn, look: Look) -> None:
        self.world, self.copy = made.open(), made.open()
        apps = made.suite.apps
        self.clients = {
            name: FormClient(AppSite(self.world, app, MAIN, look, ())) for name, app in apps.items()
        }

    def make(self, steps: Steps) -> Any:
        sent = None
        try:
            while True:
                call = steps.send(sent)
                app, _, api = call.api.partition(".")
                for step in steps_of(self.copy.suite.apps[app], api, call.arguments):
                    self.clients[app].follow(step)
                sent = self.copy.call(call.api, call.arguments, MAIN).body
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("setting", ["", "life", "office"])
def test_a_reference_that_is_followed_on_the_pages_solves_its_task(setting: str) -> None:
    rng = random.Random(setting)
    for task in TaskSet("apps/easy").take(Split.TRAIN, 12):
        made = drawn("medium", "", task.seed, SETTINGS[setting]() if setting else None)
        both = OnPages(made, Look.drawn(rng, LANGUAGES))
        answer = both.make(made.task.steps())
        assert judged(both.world, made.ways, answer).success, made.task.instruction
        assert both.world.state.key() == both.copy.state.key()
        both.world.close()
        both.copy.close()


def test_a_reference_is_followed_on_the_pages_of_apps_that_nobody_wrote() -> None:
    for task in TaskSet("apps/easy-new").take(Split.TEST, 12):
        made = drawn("medium", "new", task.seed)
        both = OnPages(made, LOOK)
        answer = both.make(made.task.steps())
        assert judged(both.world, made.ways, answer).success, made.task.instruction


def test_every_form_labels_its_fields_and_every_link_leads_somewhere() -> None:
    for app in ("bank", "calendar", "contacts", "mail"):
        client = FormClient(site(app))
        waiting, seen = [link for _, link in client.read.links], set[str]()
        while waiting:
            path = waiting.pop()
            if path in seen or len(seen) > 40:
                continue
            seen.add(path)
            client.open(path)
            assert client.page.status == 200, (path, client.read.text)
            for form in client.read.forms:
                assert form.button
                assert all(one.label or one.kind == "hidden" for one in form.fields.values())
            waiting += [link for _, link in client.read.links]
        assert len(seen) > 4


def test_what_is_left_as_it_was_is_not_changed() -> None:
    pages = site("contacts")
    client = FormClient(pages)
    row = pages.world.state.find("contacts.contact", owner=MAIN)[0]
    opened = Open(f"/update_contact?contact_id={row['id']}")
    for step in (opened, Fill("phone", "555-0199"), Send()):
        client.follow(step)
    assert pages.world.calls[-2].arguments == {"contact_id": row["id"], "phone": "555-0199"}
    assert LOOK.words["done"] in client.read.text
    for step in (opened, Send()):
        client.follow(step)
    assert client.page.status == 400 and "at least one field" in client.read.text


def test_a_refusal_is_shown_and_what_was_filled_in_stays() -> None:
    client = FormClient(site("bank"))
    steps = (Open("/send_money"), Fill("payee", "x@y.zz"), Fill("amount", "much"), Send())
    for step in steps:
        client.follow(step)
    assert client.page.status == 422 and "'amount' must be number" in client.read.text
    (form,) = (one for one in client.read.forms if one.method == "post")
    assert form.fields["payee"].value == "x@y.zz" and form.fields["amount"].value == "much"


def test_what_people_wrote_is_shown_as_text() -> None:
    pages = site("contacts")
    words = "<script>alert(1)</script>"
    row = pages.world.state.find("contacts.contact", owner=MAIN)[0]
    pages.world.state.update("contacts.contact", row["id"], {"name": words})
    client = FormClient(pages)
    client.open(f"/show_contact?contact_id={row['id']}")
    assert words in client.read.text and words not in client.page.html


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nowhere", 404, "There is no page /nowhere."),
        ("/show_contact", 400, "needs 'contact_id'"),
        ("/show_contact?contact_id=9999", 404, "no contact with the id 9999"),
        ("/show_contact?contact_id=one", 422, "must be integer"),
        ("/list_contacts?page=0", 422, "Pages begin at 1"),
        ("/login", 404, "There is no page /login."),
    ],
)
def test_a_wrong_address_is_answered_in_words(path: str, status: int, words: str) -> None:
    client = FormClient(site("contacts"))
    client.open(path)
    assert client.page.status == status and words in client.read.text


def test_a_form_for_what_only_reads_is_refused() -> None:
    assert site("contacts").post("/list_contacts", {}).status == 405


def test_every_language_has_every_word_and_looks_differ() -> None:
    assert all(of.keys() == set(LANGUAGES) for of in WORDS.values())
    looks = {repr(Look.drawn(random.Random(seed), LANGUAGES)) for seed in range(50)}
    assert len(looks) == 50
    assert Look.drawn(random.Random(5)) == Look.drawn(random.Random(5))
