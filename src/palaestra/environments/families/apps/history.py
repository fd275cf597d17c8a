"""What people did before a world starts: meetings, payments, and the mail about them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from palaestra.environments.families.apps.names import (
    ACTIVITIES,
    ADJECTIVES,
    NOTES,
    NOUNS,
    PLACES,
    TOPICS,
)
from palaestra.environments.families.apps.people import Person

OWN = 0.7  # of the meetings, payments and letters a person begins; others begin the rest
ALONE = 0.25  # of a person's own events have no guests


@dataclass(frozen=True, slots=True)
class Meeting:
    """An event of a host, and what each guest answered."""

    host: Person
    title: str
    place: str
    starts: datetime
    minutes: int
    guests: Mapping[int, str]  # accepted, declined or waiting, by the id of the guest


@dataclass(frozen=True, slots=True)
class Payment:
    """Money that one person sent to another."""

    payer: Person
    payee: Person
    cents: int
    note: str
    paid: datetime


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """A mail; both people have a copy."""

    sender: Person
    recipient: Person
    subject: str
    body: str
    sent: datetime
    answers: Letter | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What happened: meetings in the order of their making, all else in the order of time."""

    meetings: Sequence[Meeting]
    payments: Sequence[Payment]
    letters: Sequence[Letter]


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many things each active person takes part in; others may involve them in more."""

    meetings: int
    payments: int
    letters: int


@dataclass(frozen=True, slots=True)
class Historian:
    """Draws what some of a world's people did."""

    rng: random.Random
    people: Sequence[Person]
    start: datetime  # meetings lie around it, all else before it
    topics: frozenset[str]  # what letters may be about: "meeting", "payment"

    def history(self, active: Sequence[Person], amounts: Amounts) -> History:
        """Return a history in which each active person takes part in these amounts of things."""
        meetings: list[Meeting] = []
        titles: set[tuple[int, str]] = set()
        for person in active:
            for _ in range(amounts.meetings):
                meeting = self._meeting(person)
                while (meeting.host.id, meeting.title) in titles:
                    meeting = self._meeting(person)
                titles.add((meeting.host.id, meeting.title))
                meetings.append(meeting)
        payments = [self._payment(person) for person in active for _ in range(amounts.payments)]
        met, paid = defaultdict[int, list[Meeting]](list), defaultdict[int, list[Payment]](list)
        for meeting in meetings:
            if meeting.guests:
                for id in (meeting.host.id, *meeting.guests):
                    met[id].append(meeting)
        for payment in payments:
            for who in (payment.payer, payment.payee):
                paid[who.id].append(payment)
        letters: list[Letter] = []
        for person in active:
            own: list[Letter] = []
            while len(own) < amounts.letters:
                own += self._thread(person, met[person.id], paid[person.id])
            letters += own
        return History(
            meetings,
            sorted(payments, key=lambda payment: payment.paid),
            sorted(letters, key=lambda letter: letter.sent),
        )

    # ── one of each ──────────────────────────────────────────────────────────

    def _meeting(self, person: Person) -> Meeting:
        rng = self.rng
        own = rng.random() < OWN
        host = person if own else self._acquaintance(person)
        relation = host.circle[person.id] if not own else ""
        if own and rng.random() >= ALONE:
            relation = rng.choice(list(host.circle.values()))
        starts = self.start.replace(hour=rng.randint(7, 20), minute=rng.choice((0, 15, 30, 45)))
        starts += timedelta(days=rng.randint(-7, 28))
        title, guests = rng.choice(ACTIVITIES[relation]), list[int]()
        if relation:
            alike = [id for id, known in host.circle.items() if known == relation]
            guests = rng.sample(alike, min(len(alike), rng.randint(1, 3)))
            if not own and person.id not in guests:
                guests[0] = person.id
            if relation != "colleague":
                title += f" with {self.people[guests[0] - 1].first}"
        past = starts < self.start
        weights = (5, 1, 0) if past else (4, 2, 4)
        answers = {
            id: rng.choices(("accepted", "declined", "waiting"), weights)[0]
            for id in sorted(guests)
        }
        minutes = rng.choice((30, 45, 60, 90, 120))
        return Meeting(host, title, rng.choice(PLACES[relation]), starts, minutes, answers)

    def _payment(self, person: Person) -> Payment:
        rng = self.rng
        payer, payee = self._pair(person)
        note = rng.choice(NOTES[payer.circle[payee.id]])
        cents = rng.randint(4, 120) * rng.choice((25, 50, 100, 100))
        return Payment(payer, payee, cents, note, self._before(60))

    def _thread(
        self, person: Person, meetings: Sequence[Meeting], payments: Sequence[Payment]
    ) -> Iterator[Letter]:
        """Yield a letter and mostly a reply."""
        rng = self.rng
        kind = rng.choice(("meeting", "payment", "phone", "talk", "talk"))
        if kind == "meeting" and meetings and kind in self.topics:
            yield from self._about_meeting(person, rng.choice(meetings))
        elif kind == "payment" and payments and kind in self.topics:
            yield from self._about_payment(rng.choice(payments))
        elif kind == "phone":
            yield from self._about_phone(*self._pair(person))
        else:
            yield from self._talk(*self._pair(person))

    def _about_meeting(self, person: Person, meeting: Meeting) -> Iterator[Letter]:
        host = meeting.host
        guest = (
            person if person is not host else self.people[self.rng.choice([*meeting.guests]) - 1]
        )
        body = (
            f"Hi {guest.first}, I invite you to '{meeting.title}' on "
            f"{meeting.starts:%Y-%m-%d} at {meeting.starts:%H:%M}. Place: {meeting.place}. "
            f"Can you come? {host.first}"
        )
        latest = min(meeting.starts, self.start) - timedelta(hours=30)
        sent = latest - timedelta(minutes=self.rng.randint(0, 5 * 24 * 60))
        first = Letter(host, guest, f"Invitation: {meeting.title}", body, sent)
        yield first
        replies = {
            "accepted": f"Thank you, {host.first}, I will come. {guest.first}",
            "declined": f"Sorry, {host.first}, I cannot come that day. {guest.first}",
        }
        if (answer := meeting.guests[guest.id]) in replies:
            yield self._reply(first, replies[answer])

    def _about_payment(self, payment: Payment) -> Iterator[Letter]:
        payer, payee = payment.payer, payment.payee
        body = (
            f"Hi {payee.first}, I sent you {payment.cents / 100:.2f} for the {payment.note} on "
            f"{payment.paid:%Y-%m-%d}. Did it arrive? {payer.first}"
        )
        sent = min(payment.paid + timedelta(minutes=self.rng.randint(5, 600)), self._last)
        first = Letter(payer, payee, f"Payment for {payment.note}", body, sent)
        yield first
        if self.rng.random() < 0.7:
            yield self._reply(first, f"Yes, thank you, {payer.first}. {payee.first}")

    def _about_phone(self, asks: Person, knows: Person) -> Iterator[Letter]:
        wanted = self.people[
            self.rng.choice([id for id in knows.circle if id != asks.id] or [knows.id]) - 1
        ]
        body = (
            f"Hi {knows.first}, could you tell me the phone number of {wanted.name}? {asks.first}"
        )
        first = Letter(asks, knows, f"Phone number of {wanted.name}", body, self._before(30))
        yield first
        yield self._reply(first, f"It is {wanted.phone}. {knows.first}")

    def _talk(self, one: Person, other: Person) -> Iterator[Letter]:
        subject, body, reply = self.rng.choice(TOPICS[one.circle[other.id]])
        thing = f"{self.rng.choice(ADJECTIVES)} {self.rng.choice(NOUNS)}"
        words = {"thing": thing, "Thing": thing.title()}
        body = f"Hi {other.first}, {body.format(**words)} {one.first}"
        first = Letter(one, other, subject.format(**words), body, self._before(30))
        yield first
        if self.rng.random() < 0.6:
            yield self._reply(first, f"{reply} {other.first}")

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _last(self) -> datetime:
        """The last minute before the start that leaves time for a reply."""
        return self.start - timedelta(hours=24)

    def _before(self, days: int) -> datetime:
        """Return a time in the days before `_last`."""
        return self._last - timedelta(minutes=self.rng.randint(0, days * 24 * 60))

    def _reply(self, letter: Letter, body: str) -> Letter:
        sent = letter.sent + timedelta(minutes=self.rng.randint(3, 600))
        subject = f"Re: {letter.subject}"
        return Letter(letter.recipient, letter.sender, subject, body, sent, letter)

    def _acquaintance(self, person: Person) -> Person:
        return self.people[self.rng.choice(list(person.circle)) - 1]

    def _pair(self, person: Person) -> tuple[Person, Person]:
        """Return the person and an acquaintance, in the order of who begins."""
        other = self._acquaintance(person)
        return (person, other) if self.rng.random() < OWN else (other, person)
