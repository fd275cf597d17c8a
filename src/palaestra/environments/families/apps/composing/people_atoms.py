"""Goals that concern other people: what one owes, and what one tells each other."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    pick,
    readable,
    swapped,
)
from palaestra.environments.families.apps.composing.stock_atoms import (
    AMOUNTS,
    ToContact,
    address,
    named_contacts,
)
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

REASONS = ("the pizza", "the taxi", "the tickets", "the present", "the boat", "the museum")
FACT = re.compile(r"The ([a-z ]+) of the ([a-z]+ [a-z]+) is ([\w:]+)\.")
"""A fact in a text: what, of which thing, and its value."""


class RequestMoney(ToContact):
    name = "request money"
    apps = frozenset({"payments", "contacts"})
    words = (
        "Ask {name} for {amount} in the app 'payments', with the note '{note}'.",
        "{name} owes me {amount}. Request it in the app 'payments' and write '{note}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        slots = {"amount": rng.choice(AMOUNTS), "note": rng.choice(REASONS)}
        return {**slots, "name": rng.choice(contacts)["name"]}

    def steps(self, slots: Slots) -> Steps:
        payer = yield from address(slots["name"])
        given = {"amount": slots["amount"], "note": slots["note"]}
        yield call("payments.request_money", payer=payer, **given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        wrong = swapped(slots, amount=rng.sample(AMOUNTS, 3), note=REASONS)
        return [*self.others(slots, world), *wrong]


class SplitBill(ToContact):
    name = "split a bill"
    apps = frozenset({"payments", "contacts"})
    words = (
        "I paid {total} for {name}, {other} and me. In the app 'payments', ask each of the two for "
        "a third of it, with the note '{note}'.",
        "{name}, {other} and I share a bill of {total}, which I paid. Request their equal shares "
        "in the app 'payments' with the note '{note}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if len(contacts) < 2:
            return None
        one, two = rng.sample(contacts, 2)
        slots = {"name": one["name"], "other": two["name"], "note": rng.choice(REASONS)}
        return {**slots, "total": 3 * rng.randrange(5, 60), "parts": 3}

    def steps(self, slots: Slots) -> Steps:
        for who in ("name", "other"):
            payer = yield from address(slots[who])
            share = round(slots["total"] / slots["parts"], 2)
            yield call("payments.request_money", payer=payer, amount=share, note=slots["note"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        names = [r["name"] for r in named_contacts(world) if r["name"] != slots["name"]]
        return swapped(slots, other=names, parts=(1, 2), note=REASONS)


class AnswerRequest(ToContact):
    """A goal about money that somebody asks of the person."""

    apps = frozenset({"payments", "contacts"})
    way: ClassVar[str]  # the API

    def _open(self, world: World) -> list[Row]:
        me = world.state.rows("supervisor.person")[0]["email"]
        return world.state.find("payments.request", payer=me, status="open")

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        names = {row["email"]: row["name"] for row in named_contacts(world)}
        rows = [row for row in self._open(world) if row["asker"] in names]
        if not rows:
            return None
        row = rng.choice(rows)
        return {"name": names[row["asker"]], "note": row["note"], "way": self.way}

    def steps(self, slots: Slots) -> Steps:
        asker = yield from address(slots["name"])
        found = yield call("payments.list_requests", asker=asker, status="open")
        request = pick(found["requests"], note=slots["note"])
        yield call(f"payments.{slots['way']}", request_id=request["id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        names = {row["email"]: row["name"] for row in named_contacts(world)}
        others = [
            {**slots, "name": names[row["asker"]], "note": row["note"]}
            for row in self._open(world)
            if row["asker"] in names and row["note"] != slots["note"]
        ]
        return [*others[:2], *swapped(slots, way=("settle_request", "decline_request"))]


class SettleRequest(AnswerRequest):
    name = "settle a request"
    way = "settle_request"
    words = (
        "Pay what {name} asks of me in the app 'payments' for {note}.",
        "{name} wants money for {note}. Settle that request.",
    )


class DeclineRequest(AnswerRequest):
    name = "decline a request"
    way = "decline_request"
    words = (
        "Decline what {name} asks of me in the app 'payments' for {note}.",
        "{name} wants money for {note}, which I did not agree to. Decline that request.",
    )


class Post(Atom):
    name = "post into a room"
    apps = frozenset({"chat"})
    words = (
        "Tell the people in the chat room '{room}' that the code word is '{word}'.",
        "Post into the room '{room}': the code word is '{word}'.",
    )

    def _rooms(self, world: World) -> list[str]:
        rooms = readable(world, "chat.room")
        return [row["name"] for row in findable(world, "chat.room", "name", rooms)]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        rooms = self._rooms(world)
        word = " ".join(rng.sample(WORDS, 2))
        return {"room": rng.choice(rooms), "word": word} if rooms else None

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        room = yield from first("chat.search_rooms", query=slots["room"])
        text = f"The code word is '{slots['word']}'."
        yield call("chat.create_message", room_id=room["id"], text=text)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, room=self._rooms(world), word=[" ".join(rng.sample(WORDS, 3))])


class FindFact(Atom):
    name = "find a fact in chat"
    apps = frozenset({"chat"})
    answers = True
    words = (
        "Somebody wrote in chat what the {what} of the {thing} is. What is it?",
        "What is the {what} of the {thing}? It was mentioned in chat.",
    )

    def _facts(self, world: World) -> list[tuple[Any, ...]]:
        texts = [row["text"] for row in readable(world, "chat.message")]
        facts = [match.groups() for text in texts if (match := FACT.search(text))]
        known = [fact[:2] for fact in facts]
        return [fact for fact in facts if known.count(fact[:2]) == 1]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        facts = self._facts(world)
        if not facts:
            return None
        what, thing, _ = rng.choice(facts)
        return {"what": what, "thing": thing}

    def steps(self, slots: Slots) -> Steps:
        message = yield from first(
            "chat.search_messages", query=f"{slots['what']} of the {slots['thing']}"
        )
        match = FACT.search(message["text"])
        return match[3] if match else None

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        facts = self._facts(world)
        (right,) = (f[2] for f in facts if f[:2] == (slots["what"], slots["thing"]))
        others = [f for f in facts if f[2] != right]
        same = [f for f in others if f[1] == slots["thing"]]
        return [{**slots, "what": f[0], "thing": f[1]} for f in (*same, *others[:2])]


class Forward(ToContact):
    name = "forward a mail"
    apps = frozenset({"mail", "contacts"})
    words = (
        "Forward the mail with the subject '{subject}' to {name}.",
        "{name} should have the message '{subject}', too. Forward it.",
    )

    def _mails(self, world: World) -> list[Row]:
        found = findable(world, "mail.message", "subject")
        return [row for row in found if row["folder"] == "inbox"]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts, mails = named_contacts(world), self._mails(world)
        if not contacts or not mails:
            return None
        mail = rng.choice(mails)
        slots = {"subject": mail["subject"], "body": mail["body"]}
        return {**slots, "name": rng.choice(contacts)["name"]}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["body"],)

    def steps(self, slots: Slots) -> Steps:
        recipient = yield from address(slots["name"])
        mail = yield from first("mail.search_messages", query=slots["subject"])
        yield call("mail.forward_message", message_id=mail["id"], recipient=recipient)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        subjects = [row["subject"] for row in self._mails(world) if row["body"] != slots["body"]]
        return [*self.others(slots, world), *swapped(slots, subject=subjects)]


class AnswerInvitations(Atom):
    name = "answer all invitations"
    apps = frozenset({"calendar", "supervisor"})
    words = (
        "{Verb} every calendar invitation that I have not answered yet.",
        "Some invitations in my calendar wait for an answer. {Verb} all of them.",
    )
    VERBS: ClassVar = {"accepted": "Accept", "declined": "Decline"}

    def _waiting(self, world: World) -> list[Row]:
        me = world.state.rows("supervisor.person")[0]["email"]
        return world.state.find("calendar.invitation", email=me, answer="waiting")

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        if not self._waiting(world):
            return None
        answer = rng.choice(list(self.VERBS))
        return {"answer": answer, "Verb": self.VERBS[answer], "most": 20}

    def steps(self, slots: Slots) -> Steps:
        me = yield call("supervisor.show_profile")
        found = yield call(
            "calendar.list_invitations", email=me["email"], answer="waiting", per_page=20
        )
        for one in found["invitations"][: slots["most"]]:
            given = {"invitation_id": one["id"], "answer": slots["answer"]}
            yield call("calendar.answer_invitation", **given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        fewer = len(self._waiting(world)) - 1
        return swapped(slots, answer=self.VERBS, most=[fewer])


KINDS: tuple[type[Atom], ...] = (
    RequestMoney,
    SplitBill,
    SettleRequest,
    DeclineRequest,
    Post,
    FindFact,
    Forward,
    AnswerInvitations,
)
