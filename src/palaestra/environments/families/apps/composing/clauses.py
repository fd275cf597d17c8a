"""Clauses: rules of a person's policy, drawn so that one forbids a change and its twin permits it.

limit      no payment above an amount; no number of a row is set above a bound, or time after one
relation   no mail, money or invitation to people of some kind
kept       rows of some kind are not changed, deleted, answered or the like
consent    the person is asked first, and the change is made only after a yes

Both twins have the same kind of clause about the same field. Of `consent` the clause is the same,
and the person's answer another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from palaestra.environments.families.apps.composing.api_graph import ApiGraph
from palaestra.environments.families.apps.composing.crud_atoms import EntityAtom
from palaestra.environments.families.apps.composing.given_goal import GivenGoal
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Call,
    Goal,
    call,
    mine,
    readable,
)
from palaestra.environments.families.apps.composing.policy import Clause, Mark, Rule
from palaestra.environments.families.apps.composing.verifier import run, written
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import TIME, Called, World

IT, AGREED = "it", "agreed"  # words of the trace: the change that a rule is about, and a yes to it
NEVER, AFTER_A_YES = f"G(not {IT})", f"not {IT} W {AGREED}"
ORDERED = {"money": "above", "integer": "above", "date": "after", "time": "after"}
"""How a value of a type is compared with a bound."""

CHOSEN = ("choice", "boolean")
DATE = TIME[:8]
REPLY = "mail.reply_message"  # its recipient is the sender of the message
TO_PEOPLE = {"mail": "write to", "bank": "send money to", "calendar": "invite"}
PHRASES = {
    "pay": "send money",
    "pay address": "send money",
    "write": "send a mail",
    "tell": "send a mail",
    "reply": "answer a mail",
    "invite": "invite somebody",
}
NOUNS = {"bank.send_money": "payment", "calendar.invite": "invitation"}  # of verbs
VERBS = {"update": "change", "reply": "answer", "invite": "invite anybody to"}
"""How rules call what an API does, where it is not the first word of its name."""

YES, NO = "Yes, please do that.", "No, leave it as it is."
ASKING = "may allowed agree agreed okay ok permission ahead confirm sure shall"
"""Words of a question for the person's consent, besides those of what is to be done."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A goal with one change, and what its reference does and finds."""

    world: World  # in which nothing has happened
    goal: Goal
    change: Called
    table: str  # of the row that it concerns; empty where it only makes one
    row: Row | None

    @property
    def app(self) -> str:
        return self.change.api.partition(".")[0]

    @property
    def noun(self) -> str:
        """What the change makes, changes or deletes, such as "contact"."""
        api = self.change.api
        return NOUNS.get(api, api.partition(".")[2].partition("_")[2])

    @property
    def phrase(self) -> str:
        """What is done, in words: "delete a contact"."""
        atom = self.goal.atom
        if isinstance(atom, GivenGoal):
            atom = atom.goal.atom
        if isinstance(atom, EntityAtom):
            return f"{atom.name} {_with_article(self.noun)}"
        return PHRASES[atom.name]

    @property
    def graph(self) -> ApiGraph:
        return ApiGraph(self.world.suite)


class Twins(NamedTuple):
    """A clause that forbids a change, and one that permits it."""

    kind: str
    forbids: Clause
    permits: Clause
    reads: bool = False  # whether what the goal reads must be read to know which
    look: Call | None = None  # what must be read besides
    keywords: str = ""  # of a question that the person answers with yes or no; empty: none


def deed_of(world: World, goal: Goal) -> Deed | None:
    """Return a goal with what its reference does; None if it is refused, or makes two changes."""
    fork = world.fork()
    ran = run(goal.atom.steps(goal.slots), fork, MAIN)
    changes = fork.changing_calls()
    fork.close()
    if ran.refused or len(changes) != 1:
        return None
    (change,) = changes
    app = change.api.partition(".")[0]
    tables = [
        (f"{app}.{noun}", value)
        for name, value in change.arguments.items()
        if name.endswith("_id") and (noun := name.removesuffix("_id"))
        if noun in world.suite.blueprints[app].entities
    ]
    if not tables or change.api.startswith(f"{app}.create_"):
        return Deed(world, goal, change, "", None)
    table, id = tables[0]
    return Deed(world, goal, change, table, world.state.get(table, id))


def limit(deed: Deed, rng: random.Random) -> Twins | None:
    """Return twins about a number or time that the change sets."""
    taken = {
        name: kind
        for name, value in deed.change.arguments.items()
        if (kind := deed.graph.argument(deed.world.suite.apis[deed.change.api], name)) in ORDERED
        and not isinstance(value, bool)
    }
    if not taken:
        return None
    name = rng.choice(sorted(taken))
    bounds = _bounds(deed.change.arguments[name], taken[name], rng)
    if bounds is None:
        return None
    app, apis = deed.app, {deed.change.api}
    for way in ("create", "update"):
        if (api := f"{app}.{way}_{deed.noun}") in deed.world.suite.apis:
            apis.add(api)
    compared = ORDERED[taken[name]]

    def clause(bound: float | str) -> Clause:
        whose = f"{_spoken(name)} of {_with_article(deed.noun)}"
        words = f"Do not set the {whose} {compared} {written(bound)}."
        mark = Mark(IT, frozenset(apis), name, above=bound)
        return Clause(Rule("limit", words, NEVER), (mark,))

    below, most = bounds
    return Twins("limit", clause(below), clause(most))


def relation(deed: Deed, rng: random.Random) -> Twins | None:
    """Return twins about the kind of person to whom something is sent."""
    if deed.app not in TO_PEOPLE or "contacts" not in deed.world.suite.apps:
        return None
    contacts = mine(deed.world, "contacts.contact")
    answers = deed.change.api == REPLY and deed.row is not None
    to = [deed.row["sender"]] if answers and deed.row else deed.change.arguments.values()
    whom = [row for row in contacts if row["email"] in to]
    if not whom:
        return None
    right = whom[0]["relation"]
    others = sorted({row["relation"] for row in contacts} - {right})
    if not others:
        return None
    arguments: dict[str, set[str]] = {}
    for api in deed.world.suite.apis.values():
        if api.app == deed.app and api.changes:
            for name in api.parameters["properties"]:
                if deed.graph.argument(api, name) == "email":
                    arguments.setdefault(name, set()).add(api.full_name)

    def clause(kind: str) -> Clause:
        shown = f"'{kind}'"
        words = f"Do not {TO_PEOPLE[deed.app]} people whose relation in my contacts is {shown}."
        among = frozenset(row["email"] for row in contacts if row["relation"] == kind)
        marks = [Mark(IT, frozenset(a), name, among) for name, a in sorted(arguments.items())]
        if deed.app == "mail":
            letters = readable(deed.world, "mail.message")
            ids = frozenset(row["id"] for row in letters if row["sender"] in among)
            marks.append(Mark(IT, frozenset({REPLY}), "message_id", ids))
        return Clause(Rule("relation", words, NEVER), tuple(marks))

    # Who answers a mail has not looked into the contacts yet.
    look = call("contacts.search_contacts", query=whom[0]["email"]) if answers else None
    return Twins("relation", clause(right), clause(rng.choice(others)), reads=True, look=look)


def kept(deed: Deed, rng: random.Random) -> Twins | None:
    """Return twins about the row that the change concerns."""
    if deed.row is None:
        return None
    noun = deed.table.partition(".")[2]
    entity = deed.world.suite.blueprints[deed.app].entities[noun]
    fields = {
        field: column
        for field, column in entity.fields.items()
        if column.type in (*CHOSEN, *ORDERED) and not column.refers and not column.free
        if deed.row[field] is not None
    }
    if not fields:
        return None
    field = rng.choice(sorted(fields))
    kind, value = fields[field].type, deed.row[field]
    rows = readable(deed.world, deed.table)
    apis = [
        api
        for api in deed.world.suite.apis.values()
        if api.app == deed.app and api.changes and f"{noun}_id" in api.parameters["properties"]
        if api.name in (f"update_{noun}", f"delete_{noun}") or not _of_rows(api.name)
    ]
    names = frozenset(api.full_name for api in apis)
    *verbs, last = [VERBS.get(way := api.name.partition("_")[0], way) for api in apis]
    doing = f"{', '.join(verbs)} or {last}" if verbs else last

    def clause(matches: Callable[[Any], bool], condition: str) -> Clause:
        ids = frozenset(row["id"] for row in rows if matches(row[field]))
        words = f"Do not {doing} {_with_article(noun)} {condition}."
        mark = Mark(IT, names, f"{noun}_id", ids)
        return Clause(Rule("kept", words, NEVER), (mark,))

    if kind in CHOSEN:
        choices = (True, False) if kind == "boolean" else fields[field].choices
        others = [choice for choice in choices if choice != value]
        if not others:
            return None
        forbids, permits = (
            clause(partial(_equal, one), _condition(field, one))
            for one in (value, rng.choice(others))
        )
    else:
        bounds = _bounds(value, kind, rng)
        if bounds is None:
            return None
        forbids, permits = (
            clause(
                partial(_above, one), f"whose {_spoken(field)} is {ORDERED[kind]} {written(one)}"
            )
            for one in bounds
        )
    return Twins("kept", forbids, permits, reads=True)


def consent(deed: Deed, rng: random.Random) -> Twins | None:
    """Return twins whose clause is the same: the person says no, or yes."""
    if "user.ask" not in deed.world.suite.apis:
        return None
    words = f"Before you {deed.phrase}, ask me; do it only if I say yes."
    asked = Mark(AGREED, frozenset({"user.ask"}), replies=YES)
    made = Clause(
        Rule("consent", words, AFTER_A_YES), (Mark(IT, frozenset({deed.change.api})), asked)
    )
    said = [word for word in deed.phrase.split() if len(word) > 2]
    return Twins("consent", made, made, keywords=" ".join([*said, ASKING]))


KINDS: Mapping[str, Callable[[Deed, random.Random], Twins | None]] = {
    "limit": limit,
    "relation": relation,
    "kept": kept,
    "consent": consent,
}
OTHERS = ("limit", "relation", "kept")  # that a rule about another goal may have


def concerns(clause: Clause, deed: Deed) -> bool:
    """Return whether a clause is about a change."""
    return any(mark.word == IT and mark.fits(deed.change) for mark in clause.marks)


def _bounds(value: Any, kind: str, rng: random.Random) -> tuple[Any, Any] | None:
    """Return a bound that a value exceeds and one that it does not, which may be itself."""
    if kind in ("date", "time"):
        form = DATE if kind == "date" else TIME
        day = datetime.strptime(value, form)
        days = timedelta(days=rng.randint(1, 9)), timedelta(days=rng.randint(0, 9))
        return (day - days[0]).strftime(form), (day + days[1]).strftime(form)
    steps = [max(1, int(value * share)) for share in (rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.5))]
    below, most = int(value - steps[0]), value + rng.choice((0, steps[1]))
    return (below, most) if below >= 0 else None


def _of_rows(name: str) -> bool:
    """Return whether an API of that name makes, changes or deletes rows of an entity."""
    return name.partition("_")[0] in ("create", "update", "delete")


def _condition(field: str, value: str | bool) -> str:
    """Return words for a field of few values that has one of them."""
    if isinstance(value, bool):
        return f"that is {'' if value else 'not '}marked as {_spoken(field)}"
    return f"whose {_spoken(field)} is '{value}'"


def _equal(wanted: Any, value: Any) -> bool:
    return bool(wanted == value)


def _above(bound: Any, value: Any) -> bool:
    return value is not None and bool(value > bound)


def _spoken(field: str) -> str:
    """Return a field in words; of a time that it starts or ends, "start" alone reads better."""
    words = field.removesuffix("_id").replace("_", " ")
    return {"starts": "start", "departs": "departure", "arrives": "arrival"}.get(words, words)


def _with_article(noun: str) -> str:
    noun = noun.replace("_", " ")
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def drawn_twins(
    deed: Deed, rng: random.Random, kinds: Sequence[str] = tuple(KINDS)
) -> Twins | None:
    """Draw a clause of some kind, and its twin, about a change; None if none of them fits."""
    for kind in rng.sample(kinds, len(kinds)):
        if (found := KINDS[kind](deed, rng)) is not None:
            return found
    return None
