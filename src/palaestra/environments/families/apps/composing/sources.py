"""Sources: where a value stands that a goal leaves out, and the calls that find it.

A source is a goal that asks for an answer. What it answers has the type of a field, so it fits
every gap of that type: the phone of a contact fits wherever a blueprint declares a phone.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.endpoints import LARGEST_PAGE
from palaestra.environments.families.apps.composing.crud_atoms import LookUp
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Slots,
    Steps,
    call,
    findable,
)
from palaestra.environments.families.apps.composing.stock_atoms import address, named_contacts
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World


class Source(Atom):
    """A goal whose answer another goal can use."""

    answers = True

    @abstractmethod
    def kind(self, slots: Slots) -> str:
        """Return the type of the answer, as of a field."""

    @abstractmethod
    def kinds(self) -> frozenset[str]:
        """Return the types that answers may have."""

    @abstractmethod
    def phrase(self, slots: Slots) -> str:
        """Return words for the answer: "the phone of the contact 'Ida Marsh'"."""


@dataclass(frozen=True, slots=True)
class FieldOf(LookUp, Source):
    """A field of a row that words name."""

    name: ClassVar[str] = "field of"

    def kind(self, slots: Slots) -> str:
        return self.entity.fields[slots["field"]].type

    def kinds(self) -> frozenset[str]:
        fields = self.entity.fields
        return frozenset(column.type for name, column in fields.items() if self._askable(name))

    def phrase(self, slots: Slots) -> str:
        return "the {words} of the {noun} '{title}'".format(**slots)


def all_rows(api: str, key: str, **filters: Any) -> Steps:
    """Yield calls of a list until its last page; return all rows."""
    rows: list[Row] = []
    number, pages = 1, 1
    while number <= pages:
        found = yield call(api, **filters, page=number, per_page=LARGEST_PAGE)
        rows += found[key]
        number, pages = number + 1, found["pages"]
    return rows


class LastPayment(Source):
    """The amount of the last payment to or from a contact."""

    name = "last payment"
    apps = frozenset({"bank", "contacts"})
    words = ("How much was my last payment {way} {name}?",)

    def _amounts(self, world: World, way: str) -> dict[str, float]:
        """Return the last amount by the contact's name; not where two were at the same time."""
        me = world.state.get("supervisor.person", MAIN) or {}
        found = {}
        for contact in named_contacts(world):
            ends = (me["email"], contact["email"])
            payer, payee = ends if way == "to" else ends[::-1]
            paid = world.state.find("bank.payment", payer=payer, payee=payee)
            times = sorted(row["paid"] for row in paid)
            if paid and times[-1:] != times[-2:-1]:
                last = max(paid, key=lambda row: str(row["paid"]))
                found[str(contact["name"])] = float(last["amount"])
        return found

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        way = rng.choice(("to", "from"))
        amounts = self._amounts(world, way)
        return {"way": way, "name": rng.choice(sorted(amounts))} if amounts else None

    def steps(self, slots: Slots) -> Steps:
        email = yield from address(slots["name"])
        field = "payee" if slots["way"] == "to" else "payer"
        rows = yield from all_rows("bank.list_payments", "payments", **{field: email})
        return sorted(rows, key=lambda row: str(row["paid"]))[-1]["amount"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        amounts = self._amounts(world, slots["way"])
        right = amounts[slots["name"]]
        others = [{**slots, "name": n} for n, amount in amounts.items() if amount != right]
        other = "from" if slots["way"] == "to" else "to"
        if self._amounts(world, other).get(slots["name"], right) != right:
            others.insert(0, {**slots, "way": other})
        return others[:3]

    def kind(self, slots: Slots) -> str:
        return "money"

    def kinds(self) -> frozenset[str]:
        return frozenset({"money"})

    def phrase(self, slots: Slots) -> str:
        way = "my last payment to" if slots["way"] == "to" else "the last payment that I got from"
        return f"the amount of {way} {slots['name']}"


class Balance(Source):
    """The balance of one of the person's accounts."""

    name = "balance"
    apps = frozenset({"bank"})
    words = ("What is the balance of my {account} account?",)

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        return {"account": rng.choice(("checking", "savings"))}

    def steps(self, slots: Slots) -> Steps:
        found = yield call("bank.list_accounts", name=slots["account"])
        return found["accounts"][0]["balance"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [{"account": "savings" if slots["account"] == "checking" else "checking"}]

    def kind(self, slots: Slots) -> str:
        return "money"

    def kinds(self) -> frozenset[str]:
        return frozenset({"money"})

    def phrase(self, slots: Slots) -> str:
        return f"the balance of my {slots['account']} account"


class SenderOf(Source):
    """The address from which a mail came."""

    name = "sender"
    apps = frozenset({"mail"})
    words = ("Who sent the mail '{subject}'?",)

    def _candidates(self, world: World) -> list[Row]:
        people = {row["email"] for row in world.state.rows("supervisor.person", "id <> ?", [MAIN])}
        found = findable(world, "mail.message", "subject")
        return [row for row in found if row["sender"] in people]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        rows = self._candidates(world)
        return {"subject": rng.choice(rows)["subject"]} if rows else None

    def steps(self, slots: Slots) -> Steps:
        found = yield call("mail.search_messages", query=slots["subject"])
        return found["messages"][0]["sender"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        senders = {row["subject"]: row["sender"] for row in self._candidates(world)}
        right = senders[slots["subject"]]
        return [{"subject": other} for other, sender in senders.items() if sender != right][:3]

    def kind(self, slots: Slots) -> str:
        return "email"

    def kinds(self) -> frozenset[str]:
        return frozenset({"email"})

    def phrase(self, slots: Slots) -> str:
        return f"the sender of the mail '{slots['subject']}'"


def sources(suite: Suite) -> Iterator[Source]:
    """Yield where values stand in some apps."""
    for kind in (LastPayment, Balance, SenderOf):
        source: Source = kind()
        if source.apps <= suite.apps.keys():
            yield source
    for app, blueprint in suite.blueprints.items():
        for name, entity in blueprint.entities.items():
            titled = entity.owner and entity.search and "search" in entity.endpoints
            if titled and entity.fields[entity.search[0]].type == "text":
                yield FieldOf(f"{app}.{name}", entity)
