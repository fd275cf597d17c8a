"""Goals over the knowledge of a brand: upkeep of articles, calls, and answers from articles."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence

from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    first,
    swapped,
)
from palaestra.environments.families.apps.histories.brand import QUESTIONS
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

ARTICLE, TRUTH = "knowledge.article", "knowledge.truth"
ALL = "in the whole knowledge base"
ALONE = 0.5  # of the goals concern a single product


class OfKnowledge(Atom):
    """A goal over the brand's app."""

    apps = frozenset({"knowledge"})

    def truths(self, world: World, kind: str) -> list[Row]:
        """Return what is known to be true of a kind."""
        return world.state.find(TRUTH, kind=kind)


class OfArticles(OfKnowledge):
    """A goal over the articles about one product, or all of them, that have a kind of fault."""

    kind: str  # of fault

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        found = self.truths(world, self.kind)
        product = rng.choice(sorted(map(_product, found))) if rng.random() < ALONE else ""
        about = f"about the product '{product}'" if product else ALL
        chosen = [row for row in found if not product or _product(row) == product]
        return {"about": about, "product": product, "found": self.wanted(world, chosen)}

    def wanted(self, world: World, found: Sequence[Row]) -> list[list[int]]:
        """Return what is to be found, as ids of articles."""
        return [[row["one"], row["other"]] for row in found]

    def read(self, slots: Slots) -> Steps:
        """Yield calls that read the articles in question."""
        if slots["product"]:
            yield call("knowledge.search_articles", query=slots["product"], per_page=20)
            return
        for page in itertools.count(1):
            found = yield call("knowledge.list_articles", page=page, per_page=20)
            if page == found["pages"]:
                return

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        right = slots["found"]
        kinds = {"duplicate", "contradiction", "outdated"} - {self.kind}
        wrong = [row for kind in sorted(kinds) for row in self.truths(world, kind)]
        extra = self.wanted(world, [rng.choice(wrong)])
        return swapped(slots, found=[*([right[1:]] if len(right) > 1 else []), [*right, *extra]])


class ReportDuplicates(OfArticles):
    name = "report duplicates"
    kind = "duplicate"
    words = (
        "Report every pair of articles {about} that say the same thing in other words.",
        "Find all duplicates among the articles {about}, and report each pair as one.",
    )

    def steps(self, slots: Slots) -> Steps:
        yield from self.read(slots)
        for one, other in slots["found"]:
            yield call("knowledge.report_pair", article_id=one, other_id=other, kind=self.kind)


class ReportContradictions(ReportDuplicates):
    name = "report contradictions"
    kind = "contradiction"
    words = (
        "Report every pair of articles {about} that contradict each other and are both still "
        "valid.",
        "Which articles {about} contradict each other, though both are valid today? Report each "
        "pair.",
    )


class WithdrawOutdated(OfArticles):
    name = "withdraw outdated articles"
    kind = "outdated"
    words = (
        "Withdraw every article {about} whose validity has ended.",
        "Some articles {about} are no longer valid. Withdraw them.",
    )

    def wanted(self, world: World, found: Sequence[Row]) -> list[list[int]]:
        ids = [id for row in found for id in (row["one"], row["other"])]
        rows = [world.state.get(ARTICLE, id) for id in ids]
        ended = [row["id"] for row in rows if row and row["valid_until"] < world.now[:10]]
        return [[id] for id in ended or ids[:1]]  # where none has ended, one that must stay

    def steps(self, slots: Slots) -> Steps:
        yield from self.read(slots)
        for (article,) in slots["found"]:
            yield call("knowledge.update_article", article_id=article, status="withdrawn")


class OfCalls(OfKnowledge):
    """A goal over a recorded call."""

    def number(self, world: World, row: Row) -> str:
        """Return the number of the call of a truth."""
        found = world.state.get("knowledge.call", row["one"])
        assert found is not None  # no call is ever deleted
        return str(found["number"])

    def look(self, slots: Slots) -> Steps:
        """Yield a search for the call; return its id."""
        found = yield from first("knowledge.search_calls", query=slots["number"])
        return found["id"]


class FileCall(OfCalls):
    name = "file a call"
    words = (
        "What is the call {number} about? File it under the intent that fits.",
        "File the call {number}: read it, and choose its intent from the taxonomy.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        row = rng.choice(self.truths(world, "intent"))
        return {"number": self.number(world, row), "intent": row["other"]}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.look(slots)
        yield call("knowledge.list_intents", per_page=20)
        yield call("knowledge.create_filing", call_id=id, intent_id=slots["intent"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        calls = [self.number(world, row) for row in self.truths(world, "intent")]
        intents = [row["id"] for row in world.state.rows("knowledge.intent")]
        shuffled = rng.sample(intents, len(intents))
        return swapped(slots, intent=shuffled, number=calls)


class CheckCall(OfCalls):
    name = "check a call"
    words = (
        "Check how the call {number} was answered, and report each rule that was broken.",
        "Which of the rules were broken in the call {number}? Report a breach of each.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        found = self.truths(world, "breach")
        if not found:
            return None
        one = rng.choice(found)["one"]
        rules = [row["other"] for row in found if row["one"] == one]
        return {"number": self.number(world, {"one": one}), "rules": rules}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.look(slots)
        yield call("knowledge.list_rules", per_page=20)
        for rule in slots["rules"]:
            yield call("knowledge.create_breach", call_id=id, rule_id=rule)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        rules = slots["rules"]
        kept = [r["id"] for r in world.state.rows("knowledge.rule") if r["id"] not in rules]
        fewer = [rules[1:]] if len(rules) > 1 else []
        more = [[*rules, rng.choice(kept)]] if kept else []
        return swapped(slots, rules=[*fewer, *more])


class FindArticle(OfKnowledge):
    name = "find an article"
    answers = True
    words = (
        "A customer asks: '{question}' Which article tells? Answer with its title.",
        "Find the article that answers '{question}', and tell me its title.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        row = rng.choice(self.truths(world, "plain"))
        topic = row["topic"].partition(" ")[0]
        title = _title(world, row["one"])
        question = QUESTIONS[topic].format(_product(row))
        return {"question": question, "product": _product(row), "title": title}

    def steps(self, slots: Slots) -> Steps:
        yield call("knowledge.search_articles", query=slots["product"], per_page=20)
        return slots["title"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        titles = [row["title"] for row in world.state.rows(ARTICLE)]
        return swapped(slots, title=[t for t in titles if slots["product"] in t])


class AnswerFromArticles(OfKnowledge):
    name = "answer from articles"
    answers = True
    words = (
        "{question} Answer with the number, by what is valid today.",
        "A customer wants to know: {question} Tell me the number that holds today.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        row = rng.choice(self.truths(world, "outdated"))
        topic = row["topic"].partition(" ")[0]
        articles = [world.state.get(ARTICLE, row[key]) for key in ("one", "other")]
        ended, valid = sorted((a for a in articles if a), key=lambda a: str(a["valid_until"]))
        question = QUESTIONS[topic].format(_product(row))
        numbers = {"value": _number(valid["text"]), "ended": _number(ended["text"])}
        return {"question": question, "product": _product(row), **numbers}

    def steps(self, slots: Slots) -> Steps:
        yield call("knowledge.search_articles", query=slots["product"], per_page=20)
        return slots["value"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, value=[slots["ended"]])


def _product(row: Row) -> str:
    return str(row["topic"]).partition(" ")[2]


def _title(world: World, article: int) -> str:
    row = world.state.get(ARTICLE, article)
    assert row is not None  # no article is ever deleted
    return str(row["title"])


def _number(text: str) -> int:
    return int(re.findall(r"\d+", text)[0])


KINDS: tuple[type[Atom], ...] = (
    ReportDuplicates,
    ReportContradictions,
    WithdrawOutdated,
    FileCall,
    CheckCall,
    FindArticle,
    AnswerFromArticles,
)
