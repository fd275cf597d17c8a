"""Operators over a goal with a gap: another goal, old mail or the person has its value.

    chain   the value is what another goal answers: "Send the amount of my last payment to Ida
            Marsh to Omar Reed." A source fits a gap of its type.
    hidden  the value stands in one of many mails, written into the world's history
    ask     the value is known to the person alone, who tells it if asked

Near misses are those of both goals, and for `hidden` what the other mails say.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from palaestra.environments.families.apps.compiler.blueprint import Column
from palaestra.environments.families.apps.composing.draws import WORDS, drawn_value
from palaestra.environments.families.apps.composing.goal import (
    ANY,
    MAIN,
    Atom,
    Gap,
    Goal,
    Path,
    Slots,
    Steps,
    call,
)
from palaestra.environments.families.apps.composing.sources import Source
from palaestra.environments.families.apps.composing.stock_atoms import address, named_contacts
from palaestra.environments.families.apps.composing.verifier import run, written
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.stock.user import FACT
from palaestra.environments.families.apps.world import TIME, World

SAID = ("email", "phone", "money", "text")  # types that a mail says in words as the world has them
FOUND = (*SAID, "integer", "date", "time", ANY)
MAILS = (12, 20)  # that are written for one hidden value
DAYS = 28  # in which they were written
FILLERS = (
    "I hope that all is well with you.",
    "It was good to see you the other day.",
    "The weather here is better than last week.",
    "Sorry that I write so late.",
    "I was away for some days.",
    "Let me know how your week was.",
)
SUBJECTS = ("Hello", "One more thing", "News", "Before I forget", "A few words", "Good morning")
SYNONYMS = {
    "address": "email mail payee",
    "amount": "much sum money pay",
    "email": "address mail",
    "phone": "number call",
    "starts": "when time begin",
}
OTHER_FACTS = {
    "locker": "My locker at the station is 318",
    "shoe shoes": "My shoes have the size 42",
    "parking": "I park on level 3",
    "allergy allergic": "I must not eat nuts",
}
"""What the person also knows, and what no task needs."""


def value_at(slots: Slots, path: Path) -> Any:
    """Return the value to which keys lead."""
    found: Any = slots
    for key in path:
        found = found[key]
    return found


def with_value(slots: Slots, path: Path, value: Any) -> Slots:
    """Return slots with another value where the keys lead."""
    head, *rest = path
    return {**slots, head: with_value(slots[head], tuple(rest), value) if rest else value}


@dataclass(frozen=True, slots=True)
class GapOperator(Atom):
    """A goal whose slots hold the goal to do (`goal`), its gap (`path`) and where the value is.

    `guess`: a value to use without looking for it, in near misses.
    """

    deed: Atom
    words: ClassVar[tuple[str, ...]] = ("{text}",)

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps

    @abstractmethod
    def find(self, slots: Slots) -> Steps:
        """Yield the calls that find the value; return it."""

    def steps(self, slots: Slots) -> Steps:
        value = slots["guess"] if "guess" in slots else (yield from self.find(slots))
        yield from self.deed.steps(with_value(slots["goal"].slots, slots["path"], value))

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return self.deed.mentions(slots["goal"].slots)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        """Return the near misses of the goal: another value is a guess."""
        goal, path, misses = slots["goal"], slots["path"], list[Slots]()
        right = value_at(goal.slots, path)
        for other in self.deed.near_misses(goal.slots, world, rng):
            if (value := value_at(other, path)) == right:
                misses.append({**slots, "goal": replace(goal, slots=other)})
            else:
                misses.append({**slots, "guess": value})
        return misses

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        goal, path = slots["goal"], slots["path"]
        return [
            {**slots, "goal": replace(goal, slots=other)}
            for other in self.deed.alternatives(goal.slots, world)
            if value_at(other, path) == value_at(goal.slots, path)
        ]

    def _drawn(
        self, world: World, rng: random.Random, kinds: Sequence[str]
    ) -> tuple[Goal, Path, Gap] | None:
        """Draw the goal and a gap of one of these types."""
        slots = self.deed.draw(world, rng)
        if slots is None:
            return None
        fitting = {path: gap for path, gap in self.deed.gaps(slots).items() if gap.kind in kinds}
        if not fitting:
            return None
        path = rng.choice(sorted(fitting))
        return Goal(self.deed, slots, rng.randrange(len(self.deed.words))), path, fitting[path]

    def _made(self, goal: Goal, path: Path, phrase: str, **more: Any) -> Slots:
        text = self.deed.asked(goal.slots, goal.wording, path, phrase)
        return {"goal": goal, "path": path, "text": text, **more}


@dataclass(frozen=True, slots=True)
class Chain(GapOperator):
    source: Source
    name: ClassVar[str] = "chain"

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | self.source.apps

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        found = self.source.draw(world, rng)
        if found is None:
            return None
        kind = self.source.kind(found)
        made = self._drawn(world, rng, (kind, ANY) if kind in SAID else (kind,))
        if made is None:
            return None
        goal, path, _ = made
        value = run(self.source.steps(found), world, MAIN).answer
        if value in (None, ""):
            return None
        goal = replace(goal, slots=with_value(goal.slots, path, value))
        return self._made(goal, path, self.source.phrase(found), source=found)

    def find(self, slots: Slots) -> Steps:
        return (yield from self.source.steps(slots["source"]))

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = self.source.near_misses(slots["source"], world, rng)
        misses = [{**slots, "source": other} for other in others]
        return [*misses, *GapOperator.near_misses(self, slots, world, rng)]


@dataclass(frozen=True, slots=True)
class Hidden(GapOperator):
    """The slots also hold the mails that are written (`mails`); the first has the value."""

    name: ClassVar[str] = "hidden"

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"mail", "contacts"}

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        made, contacts = self._drawn(world, rng, FOUND), named_contacts(world)
        if made is None or len(contacts) < 2:
            return None
        goal, path, gap = made
        right = value_at(goal.slots, path)
        first, second = rng.sample(contacts, 2)
        number = rng.randint(*MAILS)
        words = rng.sample(WORDS, 2 * number)
        topics = [f"{one} {other}" for one, other in zip(words[::2], words[1::2], strict=True)]
        # Another contact writes about the same thing, and the same contact about another.
        heads = [(first, topics[0]), (second, topics[0]), (first, topics[1])]
        heads += [(rng.choice(contacts), topic) for topic in topics[2 : number - 1]]
        mails: list[Row] = []
        for contact, topic in heads:
            value = other_value(gap.kind, right, world, rng) if mails else right
            if value is None:
                return None
            mails.append(self._mail(world, contact, gap.label, topic, value, rng))
        phrase = f"the {gap.label} that {first['name']} wrote me for the {topics[0]}"
        return self._made(goal, path, phrase, mails=mails, kind=gap.kind, at=0)

    def find(self, slots: Slots) -> Steps:
        mail = slots["mails"][slots["at"]]
        email = yield from address(mail["name"])
        found = yield call("mail.search_messages", query=f"{mail['topic']} {email}")
        shown = yield call("mail.show_message", message_id=found["messages"][0]["id"])
        return read(shown["body"].partition(f"{mail['topic']} is ")[2].split("\n")[0], slots)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [{**slots, "at": at} for at in range(1, len(slots["mails"]))]
        return [*others, *GapOperator.near_misses(self, slots, world, rng)]

    def plant(self, slots: Slots, state: State) -> None:
        """Write the mails into both mailboxes, among the others in the order of time."""
        for mail in slots["mails"]:
            people = [state.find("supervisor.person", email=mail["sender"])[0]["id"], MAIN]
            shared = {key: mail[key] for key in ("sender", "recipient", "subject", "body", "sent")}
            for owner, folder in zip(people, ("sent", "inbox"), strict=True):
                row = {"owner": owner, "folder": folder, "read": True, "answers": None}
                state.insert("mail.message", shared | row)
        in_order_of_time(state)

    def _mail(
        self,
        world: World,
        contact: Row,
        label: str,
        topic: str,
        value: Any,
        rng: random.Random,
    ) -> Row:
        me = world.state.get("supervisor.person", MAIN) or {}
        before, after = rng.sample(FILLERS, 2)
        fact = f"The {label} for the {topic} is {written(value)}"
        names = [str(name).split()[0] for name in (me["name"], contact["name"])]
        ago = timedelta(minutes=rng.randint(24 * 60, DAYS * 24 * 60))
        return {
            "sender": contact["email"],
            "recipient": me["email"],
            "subject": rng.choice(SUBJECTS),
            "body": f"Hi {names[0]},\n{before}\n{fact}\n{after}\n{names[1]}",
            "sent": (datetime.strptime(world.start, TIME) - ago).strftime(TIME),
            "name": contact["name"],
            "topic": topic,
        }


def in_order_of_time(state: State) -> None:
    """Number the mails so that later ones have larger ids, as if each was sent at its time."""
    rows = state.rows("mail.message")
    ids = [row["id"] for row in rows]
    rows.sort(key=lambda row: (row["sent"], row["id"]))
    new: dict[int | None, int | None] = {None: None}
    new |= {row["id"]: id for row, id in zip(rows, ids, strict=True)}
    for row, id in zip(rows, ids, strict=True):
        if row["id"] != id or row["answers"] != new[row["answers"]]:
            state.update("mail.message", id, {**row, "id": id, "answers": new[row["answers"]]})


@dataclass(frozen=True, slots=True)
class Ask(GapOperator):
    """The slots also hold what the person knows (`facts`), and the right answer's beginning."""

    name: ClassVar[str] = "ask"

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"user"}

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        made = self._drawn(world, rng, FOUND)
        if made is None:
            return None
        goal, path, gap = made
        whose = goal.slots.get("name") or goal.slots.get("title") or ""
        sentence = f"The {gap.label}{f' for {whose}' if whose else ''} is "
        words = [word for word in gap.label.split() if len(word) > 2]
        keywords = " ".join([*words, *(SYNONYMS.get(word, "") for word in words)])
        facts = {keywords: sentence + written(value_at(goal.slots, path))}
        facts |= dict(rng.sample(sorted(OTHER_FACTS.items()), 2))
        phrase = rng.choice(("the {} that I have in mind", "the {} that only I know")).format(
            gap.label
        )
        more = {"facts": facts, "sentence": sentence, "label": gap.label, "kind": gap.kind}
        return self._made(goal, path, phrase, **more)

    def find(self, slots: Slots) -> Steps:
        question = f"What is the {slots['label']}?"
        told = yield call("user.ask", question=question)
        return read(told["answer"].partition(slots["sentence"])[2].split("\n")[0], slots)

    def plant(self, slots: Slots, state: State) -> None:
        for keywords, answer in slots["facts"].items():
            row = {"owner": MAIN, "keywords": keywords, "answer": answer}
            if not state.find(FACT, **row):
                state.insert(FACT, row)


def read(text: str, slots: Mapping[str, Any]) -> Any:
    """Return a value from its words; raises KeyError where they are not those of a value."""
    try:
        if slots["kind"] in ("money", "integer"):
            return float(text) if slots["kind"] == "money" else int(text)
    except ValueError:
        raise KeyError(text) from None
    if not text:
        raise KeyError(text)
    return text


def other_value(kind: str, value: Any, world: World, rng: random.Random) -> Any:
    """Draw another value of a type; None if none is found."""
    column = Column(type="text" if kind == ANY else kind)
    for _ in range(20):
        drawn = drawn_value(world, "", column, rng)
        if kind == ANY:
            drawn = drawn.casefold()
        if drawn not in (None, value, 0):
            return drawn
    return None
