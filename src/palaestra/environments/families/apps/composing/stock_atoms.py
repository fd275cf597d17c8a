"""Goals over the apps that come with palaestra."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Gap,
    Path,
    Slots,
    Steps,
    call,
    findable,
)
from palaestra.environments.families.apps.world import World

AMOUNTS = (5, 8, 12.5, 15, 20, 24.9, 30, 36, 40, 42.5, 50, 60, 75, 80)


def named_contacts(world: World) -> list[dict[str, Any]]:
    """Return the contacts that have a mailbox, and that a search for their name tells apart."""
    people = {row["email"] for row in world.state.rows("supervisor.person")}
    contacts = findable(world, "contacts.contact", "name")
    return [row for row in contacts if row["email"] in people]


def address(name: str) -> Steps:
    """Yield a search for a contact; return their address."""
    found = yield call("contacts.search_contacts", query=name)
    return found["contacts"][0]["email"]


class ToContact(Atom):
    """A goal that concerns a contact, who is named."""

    def others(self, slots: Slots, world: World) -> list[Slots]:
        """Return the slots with two other contacts: near misses of any such goal."""
        rows = [row for row in named_contacts(world) if row["name"] != slots["name"]]
        return [{**slots, "name": row["name"]} for row in rows[:2]]


class Pay(ToContact):
    name = "pay"
    apps = frozenset({"bank", "contacts"})
    words = (
        "Send {amount} to {name}.",
        "Please pay {name} {amount} from my checking account.",
        "I owe {name} {amount}. Transfer it.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        return {"name": rng.choice(contacts)["name"], "amount": rng.choice(AMOUNTS)}

    def steps(self, slots: Slots) -> Steps:
        payee = yield from address(slots["name"])
        yield call("bank.send_money", payee=payee, amount=slots["amount"])

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return {("amount",): Gap("money", "amount")}

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        amounts = [a for a in AMOUNTS if a != slots["amount"]]
        wrong = [{**slots, "amount": rng.choice(amounts)}]
        return [*self.others(slots, world), *wrong]


class Write(ToContact):
    name = "write"
    apps = frozenset({"mail", "contacts"})
    words = (
        "Write a mail to {name} and tell them the code word '{word}'.",
        "Mail {name} that the code word is '{word}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        return {"name": rng.choice(contacts)["name"], "word": " ".join(rng.sample(WORDS, 2))}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        recipient = yield from address(slots["name"])
        body = f"The code word is {slots['word']}."
        yield call("mail.send_message", recipient=recipient, subject="Code word", body=body)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        wrong = {**slots, "word": " ".join(rng.sample(WORDS, 3))}
        return [*self.others(slots, world), wrong]


class Reply(Atom):
    name = "reply"
    apps = frozenset({"mail"})
    words = (
        "Answer the mail '{subject}' and say '{word}'.",
        "Reply to the message with the subject '{subject}' with the words '{word}'.",
    )

    def _candidates(self, world: World) -> list[dict[str, Any]]:
        people = {row["email"] for row in world.state.rows("supervisor.person")}
        found = findable(world, "mail.message", "subject")
        return [row for row in found if row["folder"] == "inbox" and row["sender"] in people]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        rows = self._candidates(world)
        if not rows:
            return None
        return {"subject": rng.choice(rows)["subject"], "word": " ".join(rng.sample(WORDS, 2))}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        found = yield call("mail.search_messages", query=slots["subject"])
        id = found["messages"][0]["id"]
        yield call("mail.reply_message", message_id=id, body=slots["word"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [r for r in self._candidates(world) if r["subject"] != slots["subject"]]
        misses: list[Slots] = [{**slots, "subject": row["subject"]} for row in others[:2]]
        return [*misses, {**slots, "word": " ".join(rng.sample(WORDS, 3))}]


class Invite(ToContact):
    name = "invite"
    apps = frozenset({"calendar", "contacts"})
    words = (
        "Invite {name} to the event '{title}'.",
        "{name} should come to '{title}'. Send an invitation.",
    )

    def _free(self, world: World, email: str) -> list[str]:
        """Return the titles of events to which somebody is not invited yet."""
        invited = {
            row["event_id"]
            for row in world.state.find("calendar.invitation", owner=MAIN, email=email)
        }
        events = findable(world, "calendar.event", "title")
        return [row["title"] for row in events if row["id"] not in invited]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        contact = rng.choice(contacts)
        titles = self._free(world, contact["email"])
        return {"name": contact["name"], "title": rng.choice(titles)} if titles else None

    def steps(self, slots: Slots) -> Steps:
        email = yield from address(slots["name"])
        found = yield call("calendar.search_events", query=slots["title"])
        yield call("calendar.invite", event_id=found["events"][0]["id"], email=email)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        contacts = {row["name"]: row["email"] for row in named_contacts(world)}
        titles = [t for t in self._free(world, contacts[slots["name"]]) if t != slots["title"]]
        wrong = [{**slots, "title": title} for title in titles[:2]]
        right = [
            {**slots, "name": name}
            for name, email in contacts.items()
            if name != slots["name"] and slots["title"] in self._free(world, email)
        ]
        return [*right[:2], *wrong]


STOCK: tuple[type[Atom], ...] = (Pay, Write, Reply, Invite)


def stock_atoms(suite: Suite) -> Iterator[Atom]:
    """Yield the goals whose apps are there."""
    for kind in STOCK:
        atom = kind()
        if atom.apps <= suite.apps.keys():
            yield atom
