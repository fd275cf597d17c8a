"""Populations: worlds full of people who know each other, consistent across apps.

A world is drawn from its size and seed alone, so that equal ones are equal to the byte. The first
row of `supervisor.person` is the person for whom an agent acts. People who are in each other's
address book are relatives, colleagues, friends or others; they meet, pay each other and write about
both. In small worlds only the first person has such a history; in others everybody.

Checking accounts were opened with whole hundreds: balance + sent - received is a multiple of 100,
less what was spent by card (`histories/spending.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.filling import fill
from palaestra.environments.families.apps.histories import HISTORIES
from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.history import Amounts, Historian, History
from palaestra.environments.families.apps.names import ADJECTIVES, NOUNS
from palaestra.environments.families.apps.people import Person, draw_people
from palaestra.environments.families.apps.state import Row, State, Template
from palaestra.environments.families.apps.stock import VERBS, stock_app
from palaestra.environments.families.apps.world import TIME

START = "2026-03-02 09:00"
"""The time at which populated worlds begin."""

CACHED = 32  # templates that `world_template` keeps; a small one has about 0.1 MB
UNREAD = 0.4  # of the mails of the last days, which have no reply
AMOUNTS = Amounts(meetings=12, payments=15, letters=25)


@dataclass(frozen=True, slots=True)
class Size:
    """How many people a world has, and how many of them, from the first on, have a history."""

    people: int
    active: int


SIZES = {
    "small": Size(people=14, active=1),  # about 300 rows
    "medium": Size(people=70, active=70),  # about 8,000
    "large": Size(people=520, active=520),  # about 58,000
}


@lru_cache(maxsize=CACHED)
def world_template(suite: Suite, size: str, seed: int) -> Template:
    """Return `populate`'s template; the last ones are kept."""
    return populate(suite, size, seed)


def populate(suite: Suite, size: str, seed: int) -> Template:
    """Return a world with people and all that they have in the suite's apps.

    Apps that this module does not know are filled by the types of their fields.

    Args:
        suite: its apps; `supervisor` must be among them.
        size: one of `SIZES`.
        seed: what is drawn.

    Raises:
        UnknownName: there is no such size.
        InputError: the suite has no supervisor app.
    """
    if size not in SIZES:
        raise UnknownName("size of a world", size, list(SIZES))
    known = {
        name
        for name, blueprint in suite.blueprints.items()
        if name in VERBS and blueprint == stock_app(name).blueprint
    }
    if "supervisor" not in known:
        raise InputError(
            "A populated world needs the app 'supervisor', which knows its people; add it."
        )
    rng = random.Random(f"population {size} {seed}")
    people = draw_people(rng, SIZES[size].people)
    active = people[: SIZES[size].active]
    topics = {"calendar": "meeting", "bank": "payment"}
    about = frozenset(topic for app, topic in topics.items() if app in known)
    start = datetime.strptime(START, TIME)
    history = Historian(rng, people, start, about).history(active, AMOUNTS)
    state = State(suite.empty())
    writer = _Writer(state, rng, people, start)
    writer.supervisor(suite)
    if "contacts" in known:
        writer.contacts()
    if "calendar" in known:
        writer.calendar(history)
    if "bank" in known:
        writer.bank(history, active)
    if "mail" in known:
        writer.mail(history)
    own = {name: app.history for name, app in suite.apps.items() if app.history is not None}
    written = {name: write for name, write in HISTORIES.items() if name in known} | own
    for name, write in written.items():
        write(Scene(state, random.Random(f"{name} {size} {seed}"), people, active, start))
    unwritten = suite.apps.keys() - known - own.keys()
    fill(state, suite, sorted(unwritten), people, start, rng)
    template = state.template()
    state.close()
    return template


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes what was drawn into the tables of the stock apps."""

    state: State
    rng: random.Random
    people: Sequence[Person]
    start: datetime

    def supervisor(self, suite: Suite) -> None:
        """Write the people, and their passwords for all private apps."""
        for person in self.people:
            row: Row = {"owner": person.id, "name": person.name, "email": person.email}
            row |= {"phone": person.phone, "birthday": person.birthday, "address": person.address}
            self.state.insert("supervisor.person", row)
        for person in self.people:
            for app, blueprint in suite.blueprints.items():
                if blueprint.private:
                    words = (self.rng.choice(ADJECTIVES), self.rng.choice(NOUNS))
                    password = f"{'-'.join(words)}-{self.rng.randint(100, 999)}"
                    row = {"owner": person.id, "app": app, "username": person.email}
                    self.state.insert("supervisor.credential", row | {"password": password})

    def contacts(self) -> None:
        for person in self.people:
            for id, relation in person.circle.items():
                other = self.people[id - 1]
                row: Row = {"owner": person.id, "name": other.name, "email": other.email}
                row |= {"phone": other.phone, "relation": relation}
                self.state.insert("contacts.contact", row)

    def calendar(self, history: History) -> None:
        for meeting in history.meetings:
            row: Row = {"owner": meeting.host.id, "title": meeting.title, "place": meeting.place}
            row |= {"starts": meeting.starts.strftime(TIME), "minutes": meeting.minutes}
            event = self.state.insert("calendar.event", row)
            for id, answer in meeting.guests.items():
                row = {"owner": meeting.host.id, "event_id": event, "answer": answer}
                email = self.people[id - 1].email
                self.state.insert("calendar.invitation", row | {"email": email})

    def bank(self, history: History, active: Sequence[Person]) -> None:
        """Write accounts with what payments left of their opening balance, cards and payments."""
        sent = dict.fromkeys((person.id for person in self.people), 0)  # in cents
        received = dict(sent)
        for payment in history.payments:
            sent[payment.payer.id] += payment.cents
            received[payment.payee.id] += payment.cents
        accounts: dict[int, tuple[int, int]] = {}
        for person in self.people:
            # Opened with more than was ever sent, so that no balance was below 0 in between.
            opened = (sent[person.id] // 10_000 + self.rng.randint(15, 60)) * 10_000
            checking = opened - sent[person.id] + received[person.id]
            savings = self.rng.randint(20, 200) * 10_000
            first, second = (
                self.state.insert(
                    "bank.account", {"owner": person.id, "name": name, "balance": cents / 100}
                )
                for name, cents in (("checking", checking), ("savings", savings))
            )
            accounts[person.id] = (first, second)
        for person in active:
            digits = self.rng.sample(range(1000, 10_000), 2)
            for account, number in zip(accounts[person.id], digits, strict=True):
                row: Row = {"owner": person.id, "account_id": account, "digits": str(number)}
                row["status"] = "active" if self.rng.random() < 0.8 else "frozen"
                row["daily_limit"] = float(self.rng.choice((200, 500, 1000, 2000)))
                self.state.insert("bank.card", row)
        for payment in history.payments:
            row = {"owner": payment.payer.id, "payer": payment.payer.email}
            row |= {"payee": payment.payee.email, "amount": payment.cents / 100}
            row |= {"note": payment.note, "paid": payment.paid.strftime(TIME)}
            self.state.insert("bank.payment", row)

    def mail(self, history: History) -> None:
        """Write each letter into both mailboxes; each copy of a reply answers its owner's copy."""
        answered = {letter.answers for letter in history.letters}
        copies: dict[tuple[object, int], int] = {}
        for letter in history.letters:
            row: Row = {"sender": letter.sender.email, "recipient": letter.recipient.email}
            row |= {"subject": letter.subject, "body": letter.body}
            row["sent"] = letter.sent.strftime(TIME)
            recent = (self.start - letter.sent).days < 10
            unread = letter not in answered and recent and self.rng.random() < UNREAD
            folder = "archive" if not unread and self.rng.random() < 0.1 else "inbox"
            for person, copy in (
                (letter.recipient, {"folder": folder, "read": not unread}),
                (letter.sender, {"folder": "sent", "read": True}),
            ):
                copy |= {"owner": person.id, "answers": copies.get((letter.answers, person.id))}
                copies[letter, person.id] = self.state.insert("mail.message", row | copy)
