"""Goals in which time matters.

`forward_answer`  wait for somebody's mail, then forward it soon
`send_at`         do something at a time, neither earlier nor much later
`pay_before`      do something before a time
`invite_or_else`  ask somebody, wait for what they answer, and act on it
`follow_move`     enter an appointment that its organiser moves as soon as it is entered

References look before they wait, so they go on from any moment.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Slots,
    Steps,
    call,
    findable,
)
from palaestra.environments.families.apps.composing.stock_atoms import (
    AMOUNTS,
    ToContact,
    address,
    named_contacts,
)
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.events import At, Deed, Event, Once
from palaestra.environments.families.apps.state import State
from palaestra.environments.families.apps.world import MINUTE, TIME, World

INVITATION = "calendar.invitation"
PATIENCE = 40  # notifications for which a reference waits
PUNCTUAL = 10  # minutes after a time in which "at" that time is met
DEADLINE = 60  # minutes for an appointment that is moved


def later(start: str, minutes: int) -> str:
    """Return the time some minutes after another."""
    return (datetime.strptime(start, TIME) + timedelta(minutes=minutes)).strftime(TIME)


def minutes_between(now: str, time: str) -> int:
    """Return how many minutes a time is after another; below 0: before."""
    gap = datetime.strptime(time, TIME) - datetime.strptime(now, TIME)
    return int(gap.total_seconds()) // MINUTE


def person_of(world: World, email: str) -> int:
    """Return the id of the person with an address."""
    return int(world.state.find("supervisor.person", email=email)[0]["id"])


def two_contacts(world: World, rng: random.Random) -> list[dict[str, Any]]:
    """Draw two contacts; fewer if there are not so many."""
    contacts = named_contacts(world)
    return rng.sample(contacts, min(2, len(contacts)))


def idle(slots: Slots) -> Steps:
    """Do nothing for some minutes, where a near miss does so."""
    if slots.get("idle"):
        yield call("clock.wait", minutes=slots["idle"])


def mails_about(words: str, number: int) -> Steps:
    """Wait until there are so many mails with these words; return them, the oldest first."""
    for _ in range(PATIENCE):
        found = yield call("mail.search_messages", query=words)
        if found["total"] >= number:
            return found["messages"]
        yield call("clock.wait_for_notification")
    raise KeyError(f"no mail about {words}")


class ForwardAnswer(ToContact):
    name = "forward_answer"
    apps = frozenset({"mail", "contacts", "clock"})
    words = (
        "{sender} will answer my question about '{subject}'. When the answer arrives, forward it to"
        " {name} within {minutes} minutes.",
        "Wait for the mail of {sender} about '{subject}', and forward it to {name} at most "
        "{minutes} minutes after it has come.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        people = two_contacts(world, rng)
        if len(people) < 2:
            return None
        return {
            "sender": people[0]["name"],
            "person": person_of(world, people[0]["email"]),
            "name": people[1]["name"],
            "subject": " ".join(rng.sample(WORDS, 2)).capitalize(),
            "word": " ".join(rng.sample(WORDS, 2)),
            "second": MINUTE * rng.randint(5, 45) + rng.randrange(MINUTE),
            "minutes": rng.choice((3, 5, 10)),
        }

    def events(self, slots: Slots, world: World) -> Sequence[Event]:
        def answer(times: int) -> Deed:
            text = {"subject": f"Re: {slots['subject']}", "body": f"It is '{slots['word']}'."}
            yield call("mail.send_message", recipient=my_address(world.state), **text)

        return (Event("answer", slots["person"], At(slots["second"]), answer),)

    def windows(self, slots: Slots) -> Sequence[Window]:
        return (Window("mail", latest=MINUTE * slots["minutes"], since="answer"),)

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        recipient = yield from address(slots["name"])
        found = yield from mails_about(slots["subject"], 1)
        yield from idle(slots)
        yield call("mail.forward_message", message_id=found[0]["id"], recipient=recipient)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [*self.others(slots, world), {**slots, "idle": slots["minutes"] + 1}]


class SendAt(ToContact):
    name = "send_at"
    apps = frozenset({"mail", "contacts", "clock"})
    words = (
        "At {clock}, mail {name} that the code word is '{word}'. Not before; up to ten minutes "
        "later is fine.",
        "Between {clock} and ten minutes later, write {name} a mail with the code word '{word}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        minutes = 5 * rng.randint(3, 12)
        time = later(world.start, minutes)
        return {
            "name": rng.choice(contacts)["name"],
            "word": " ".join(rng.sample(WORDS, 2)),
            "second": MINUTE * minutes,
            "time": time,
            "clock": time[11:],
        }

    def windows(self, slots: Slots) -> Sequence[Window]:
        return (Window("mail", slots["second"], slots["second"] + PUNCTUAL * MINUTE),)

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        recipient = yield from address(slots["name"])
        known = yield call("clock.now")
        minutes = minutes_between(known["now"], slots["time"])
        if minutes > 0:
            yield call("clock.wait", minutes=minutes)
        body = f"The code word is {slots['word']}."
        yield call("mail.send_message", recipient=recipient, subject="Code word", body=body)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        wrong = [{**slots, "time": later(slots["time"], by)} for by in (-12, PUNCTUAL + 2)]
        return [*self.others(slots, world), *wrong]


class PayBefore(ToContact):
    name = "pay_before"
    apps = frozenset({"bank", "contacts", "clock"})
    words = (
        "Send {amount} to {name} before {clock}.",
        "{name} must have {amount} from me by {clock}. Transfer it in time.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        minutes = rng.randint(4, 15)
        return {
            "name": rng.choice(contacts)["name"],
            "amount": rng.choice(AMOUNTS),
            "minutes": minutes,
            "clock": later(world.start, minutes)[11:],
        }

    def windows(self, slots: Slots) -> Sequence[Window]:
        return (Window("bank", latest=MINUTE * slots["minutes"] - 1),)

    def steps(self, slots: Slots) -> Steps:
        payee = yield from address(slots["name"])
        yield from idle(slots)
        yield call("bank.send_money", payee=payee, amount=slots["amount"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        wrong = {**slots, "amount": rng.choice([a for a in AMOUNTS if a != slots["amount"]])}
        return [*self.others(slots, world), wrong, {**slots, "idle": slots["minutes"]}]


class InviteOrElse(ToContact):
    name = "invite_or_else"
    apps = frozenset({"calendar", "contacts", "clock"})
    words = (
        "Invite {name} to '{title}' and wait for the answer. If they decline, invite {other}.",
        "Ask {name} to come to '{title}' by an invitation; only if they decline it, invite {other}"
        " instead.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        people = two_contacts(world, rng)
        emails = [row["email"] for row in people]
        events = [
            row
            for row in findable(world, "calendar.event", "title")
            if not any(world.state.find(INVITATION, event_id=row["id"], email=e) for e in emails)
        ]
        if len(people) < 2 or not events:
            return None
        event = rng.choice(events)
        return {
            "name": people[0]["name"],
            "email": emails[0],
            "person": person_of(world, emails[0]),
            "other": people[1]["name"],
            "other_email": emails[1],
            "title": event["title"],
            "event": event["id"],
            "answer": rng.choice(("accepted", "declined")),
            "after": MINUTE * rng.randint(2, 20),
        }

    def events(self, slots: Slots, world: World) -> Sequence[Event]:
        invitation = {"event_id": slots["event"], "email": slots["email"]}

        def invited(state: State) -> bool:
            return bool(state.find(INVITATION, **invitation))

        def answer(times: int) -> Deed:
            found = yield call("calendar.list_invitations", **invitation)
            id = found["invitations"][0]["id"]
            yield call("calendar.answer_invitation", invitation_id=id, answer=slots["answer"])

        return (Event("answer", slots["person"], Once(invited, slots["after"]), answer),)

    def windows(self, slots: Slots) -> Sequence[Window]:
        return (Window("calendar", since="answer", arguments={"email": slots["other_email"]}),)

    def steps(self, slots: Slots) -> Steps:
        email = yield from address(slots["name"])
        found = yield call("calendar.search_events", query=slots["title"])
        id = found["events"][0]["id"]
        yield call("calendar.invite", event_id=id, email=email)
        for _ in range(PATIENCE):
            found = yield call("calendar.list_invitations", event_id=id, email=email)
            if (answer := found["invitations"][0]["answer"]) != "waiting":
                break
            yield call("clock.wait_for_notification")
        if (answer == "declined") != bool(slots.get("contrary")):
            other = yield from address(slots["other"])
            yield call("calendar.invite", event_id=id, email=other)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [*self.others(slots, world), {**slots, "contrary": True}]


class FollowMove(Atom):
    name = "follow_move"
    apps = frozenset({"calendar", "mail", "contacts", "clock"})
    words = (
        "{name} will write to me when '{title}' takes place. Put it into my calendar, for an hour. "
        "They will move it once more after that; follow. All of it before {clock}.",
        "Wait for the mail of {name} about '{title}' and enter it in my calendar for 60 minutes. "
        "It will be moved once again, so change the entry then. Be done by {clock}.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        contact = rng.choice(contacts)
        first, second = (
            later(world.start, 24 * 60 * day + 15 * rng.randint(0, 30))
            for day in rng.sample(range(1, 20), 2)
        )
        return {
            "name": contact["name"],
            "person": person_of(world, contact["email"]),
            "title": " ".join(rng.sample(WORDS, 2)).capitalize(),
            "first": first,
            "second": second,
            "begins": MINUTE * rng.randint(1, 15) + rng.randrange(MINUTE),
            "after": MINUTE * rng.randint(2, 15),
            "clock": later(world.start, DEADLINE)[11:],
        }

    def events(self, slots: Slots, world: World) -> Sequence[Event]:
        title = slots["title"]

        def entered(state: State) -> bool:
            return bool(state.find("calendar.event", owner=MAIN, title=title))

        def plan(times: int) -> Deed:
            yield call("calendar.create_event", title=title, starts=slots["first"])
            text = {"subject": title, "body": f"'{title}' is on {slots['first']}."}
            yield call("mail.send_message", recipient=my_address(world.state), **text)

        def move(times: int) -> Deed:
            found = yield call("calendar.search_events", query=title)
            id = found["events"][0]["id"]
            yield call("calendar.update_event", event_id=id, starts=slots["second"])
            text = {"subject": title, "body": f"I must move '{title}' to {slots['second']}."}
            yield call("mail.send_message", recipient=my_address(world.state), **text)

        return (
            Event("plan", slots["person"], At(slots["begins"]), plan),
            Event("move", slots["person"], Once(entered, slots["after"]), move),
        )

    def windows(self, slots: Slots) -> Sequence[Window]:
        return (Window("calendar", latest=DEADLINE * MINUTE - 1),)

    def steps(self, slots: Slots) -> Steps:
        found = yield from mails_about(slots["title"], 1)
        starts = yield from _time_in(found[0]["id"])
        event = yield call("calendar.create_event", title=slots["title"], starts=starts)
        if slots.get("ignores"):
            return
        found = yield from mails_about(slots["title"], 2)
        starts = yield from _time_in(found[1]["id"])
        yield from idle(slots)
        yield call("calendar.update_event", event_id=event["id"], starts=starts)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        wrong = {**slots, "title": f"{slots['title']} 2"}
        return [wrong, {**slots, "ignores": True}, {**slots, "idle": DEADLINE}]


def _time_in(message: int) -> Steps:
    """Read a mail; return the time that it names."""
    read = yield call("mail.show_message", message_id=message)
    return re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", read["body"])[0]


def my_address(state: State) -> str:
    """Return the address of the person for whom the agent acts."""
    me = state.get("supervisor.person", MAIN)
    assert me is not None
    return str(me["email"])


TIMED: tuple[type[Atom], ...] = (ForwardAnswer, SendAt, PayBefore, InviteOrElse, FollowMove)
