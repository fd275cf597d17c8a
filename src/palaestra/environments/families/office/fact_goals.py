"""Goals for which a colleague must be asked for a fact that stands in no app."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.gaps import (
    FOUND,
    GapOperator,
    other_value,
    read,
    value_at,
)
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    first,
)
from palaestra.environments.families.apps.composing.people_atoms import FACT as SENTENCE
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.office.colleague import Fact, stated
from palaestra.environments.families.office.colleagues_app import (
    ASK,
    COLLEAGUE,
    FACT,
    fact_row,
)

PLAIN, PROOF, REFERRED = "plain", "proof", "referred"
WAYS = (PLAIN, PROOF, REFERRED)


def colleagues_of(world: World) -> list[Row]:
    """Return the colleagues of the person for whom the agent acts."""
    return world.state.rows(COLLEAGUE)


def address_of(query: str) -> Steps:
    """Yield a search for a colleague, by name or duty; return their address."""
    found = yield from first("colleagues.search_colleagues", query=query)
    return found["email"]


def asked_fact(email: str, label: str, more: str = "") -> Steps:
    """Yield a question for a fact; return its value in words, or nothing if it is not told."""
    told = yield call(ASK, email=email, message=f"What is the {label}?{more}")
    return stated(told["reply"], label)


class AskColleague(Atom):
    """What a colleague knows is the answer."""

    name = "ask a colleague"
    answers = True
    apps = frozenset({"colleagues"})
    words = (
        "What is the {label}? Ask {who}, and answer with it.",
        "Find out the {label} from {who}, and tell me.",
    )

    def _drawn(self, world: World, rng: random.Random, row: Row) -> dict[str, Any]:
        owner = next(one for one in colleagues_of(world) if one["owner"] == row["owner"])
        label = f"{row['what']} for the {row['topic']}"
        if rng.random() < 0.5:
            return {"label": label, "who": owner["name"], "query": owner["name"]}
        who = f"the colleague whose duties include '{row['what']}'"
        return {"label": label, "who": who, "query": row["what"]}

    def _facts(self, world: World) -> list[Row]:
        """Return the numbers that everybody is told."""
        rows = world.state.rows(FACT)
        return [row for row in rows if row["value"].isdigit() and not row["proof"] + row["ticket"]]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        return self._drawn(world, rng, rng.choice(self._facts(world)))

    def steps(self, slots: Slots) -> Steps:
        if "guess" in slots:
            return slots["guess"]
        email = yield from address_of(slots["query"])
        return int((yield from asked_fact(email, slots["label"])) or -1)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [self._drawn(world, rng, row) for row in self._facts(world)]
        wrong = [other for other in others if other["label"] != slots["label"]]
        names = [row["name"] for row in colleagues_of(world) if row["name"] != slots["query"]]
        asked = [{**slots, "query": name} for name in names if slots["query"] == slots["who"]]
        return [*rng.sample(wrong, 3), *asked, {**slots, "guess": rng.randint(10, 99_999)}]


@dataclass(frozen=True, slots=True)
class Told(GapOperator):
    """A goal of which a colleague knows a value.

    The slots also hold the fact (`label`, `fact`), who is named (`name`) and how it is told
    (`way`): at once, after a proof that stands in the wiki (`article`), or by a colleague to whom
    the first one refers (`other`).
    """

    name: ClassVar[str] = "told by a colleague"

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"colleagues"}

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        slots = self._known(world, rng)
        articles = _articles(world)
        way = rng.choice(WAYS)
        if slots is None or (way == PROOF and not articles):
            return None
        fact: Fact = slots["fact"]
        if way == PROOF:
            article, what, thing, value = rng.choice(articles)
            label = f"{what} of the {thing}"
            proof = Fact(fact.what, fact.topic, fact.value, proof=value, proof_label=label)
            return {**slots, "fact": proof, "article": article, "way": way}
        return {**slots, "way": way}

    def find(self, slots: Slots) -> Steps:
        label, more = slots["fact"].label, ""
        email = yield from address_of(slots["name"])
        if slots["way"] != PLAIN:
            yield from asked_fact(email, label)
        if slots["way"] == REFERRED:
            email = yield from address_of(slots["other"])
        if slots["way"] == PROOF:
            article = yield from first("wiki.search_articles", query=slots["article"])
            shown = yield call("wiki.show_article", article_id=article["id"])
            known = {f"{one} of the {of}": v for one, of, v in SENTENCE.findall(shown["text"])}
            wanted = slots["fact"].proof_label
            more = f" The {wanted} is {known[wanted]}."
        return read((yield from asked_fact(email, label, more)), slots)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        goal, path = slots["goal"], slots["path"]
        other = other_value(slots["kind"], value_at(goal.slots, path), world, rng)
        guesses = [] if other is None else [{**slots, "guess": other}]
        return [*GapOperator.near_misses(self, slots, world, rng), *guesses]

    def plant(self, slots: Slots, state: State) -> None:
        fact: Fact = slots["fact"]
        knower = slots["other"] if slots["way"] == REFERRED else slots["name"]
        plant_fact(state, knower, fact)
        if slots["way"] == REFERRED:
            plant_fact(state, slots["name"], Fact(fact.what, fact.topic, "", knows=knower))

    def _known(self, world: World, rng: random.Random) -> dict[str, Any] | None:
        """Draw the goal, and who knows its value; None if there is none."""
        made = self._drawn(world, rng, FOUND)
        if made is None:
            return None
        goal, path, gap = made
        topic = " ".join(rng.sample(WORDS, 2))
        fact = Fact(gap.label, topic, written(value_at(goal.slots, path)))
        name, other = (row["name"] for row in rng.sample(colleagues_of(world), 2))
        phrase = f"the {fact.label} that {name} can tell you"
        more = {"name": name, "other": other, "fact": fact, "kind": gap.kind}
        return dict(self._made(goal, path, phrase, **more))


def plant_fact(state: State, name: str, fact: Fact) -> None:
    """Let a colleague of that name know something."""
    (colleague,) = state.find(COLLEAGUE, name=name)
    state.insert(FACT, fact_row(colleague["owner"], fact))


def _articles(world: World) -> list[tuple[str, str, str, str]]:
    """Return the facts that stand in the wiki, each with its article's title before it."""
    return [
        (row["title"], *found)
        for row in world.state.rows("wiki.article")
        for found in SENTENCE.findall(row["text"])
    ]
