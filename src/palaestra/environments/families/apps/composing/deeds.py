"""Goals with a gap that other goals can fill: tell somebody a value, pay an address."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.crud_atoms import Add, Change, crud_atoms
from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    ANY,
    MAIN,
    Atom,
    Gap,
    Path,
    Slots,
    Steps,
    call,
)
from palaestra.environments.families.apps.composing.stock_atoms import (
    AMOUNTS,
    Pay,
    ToContact,
    address,
    named_contacts,
)
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.world import World


class Tell(ToContact):
    name = "tell"
    apps = frozenset({"mail", "contacts"})
    words = ("Mail {name} {fact}.", "Write to {name} and tell them {fact}.")

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        return {"name": rng.choice(contacts)["name"], "fact": " ".join(rng.sample(WORDS, 2))}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (written(slots["fact"]),)

    def steps(self, slots: Slots) -> Steps:
        recipient = yield from address(slots["name"])
        body = f"Here it is: {written(slots['fact'])}."
        yield call("mail.send_message", recipient=recipient, subject="As promised", body=body)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [*self.others(slots, world), {**slots, "fact": " ".join(rng.sample(WORDS, 3))}]

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return {("fact",): Gap(ANY, "code word")}


class PayAddress(Atom):
    name = "pay address"
    apps = frozenset({"bank"})
    words = ("Send {amount} to {payee}.", "Please pay {amount} to {payee}.")

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        people = world.state.rows("supervisor.person", "id <> ?", [MAIN])
        return {"payee": rng.choice(people)["email"], "amount": rng.choice(AMOUNTS)}

    def steps(self, slots: Slots) -> Steps:
        yield call("bank.send_money", payee=slots["payee"], amount=slots["amount"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        amounts = [amount for amount in AMOUNTS if amount != slots["amount"]]
        people = world.state.rows("supervisor.person", "id <> ?", [MAIN])
        others = [row["email"] for row in people if row["email"] != slots["payee"]]
        wrong = [{**slots, "payee": email} for email in rng.sample(others, min(2, len(others)))]
        return [*wrong, {**slots, "amount": rng.choice(amounts)}]

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return {("payee",): Gap("email", "address"), ("amount",): Gap("money", "amount")}


def deeds(suite: Suite, ids: bool = True) -> Iterator[Atom]:
    """Yield the goals with gaps that some apps allow; `ids` as for `crud_atoms`."""
    for kind in (Tell, Pay, PayAddress):
        atom = kind()
        if atom.apps <= suite.apps.keys():
            yield atom
    for made in crud_atoms(suite, ids):
        if isinstance(made, (Add, Change)):
            yield made
