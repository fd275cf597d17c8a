"""The support desk of a brand: answers are found in its articles, over several turns, with tools.

The articles have faults (`histories/brand.py`): some are outdated, and some contradict each other.
After CXMArena's multi-turn retrieval with tools (Garg et al. 2025).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.composing.goal import Call, call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.histories import brand
from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.apps.world import TIME
from palaestra.environments.families.desk.desks.confirming import one_yes_each
from palaestra.environments.families.desk.desks.handing_over import handing_over
from palaestra.environments.families.desk.scenario import (
    Draft,
    Kind,
    Scenario,
    ServiceDesk,
    Slot,
    Wish,
    known_of,
)
from palaestra.environments.families.desk.user import PERSONAS

ORDER, ARTICLE, TRUTH = "support.order", "knowledge.article", "knowledge.truth"
TODAY = date.fromisoformat(START[:10])
MONTH = 30.5  # days
CONFIRMED = r"/support\.(return_order|book_repair)/"
READING = r"/knowledge\.(search_articles|list_articles|show_article)/"


def _delivered(caller: Caller, order_id: int) -> Row:
    """Return an order that was delivered; raises ApiError 404 or 409."""
    order = caller.own(ORDER, order_id)
    if order["status"] != "delivered":
        raise ApiError(409, f"The order is {order['status']}.")
    return order


@verb
def return_order(caller: Caller, order_id: int) -> Row:
    """Take a delivered order back.

    Returns:
        status: string

    Raises:
        404: there is no such order
        409: it is not delivered, or came back already
    """
    _delivered(caller, order_id)
    caller.state.update(ORDER, order_id, {"status": "returned"})
    return {"status": "returned"}


@verb
def book_repair(caller: Caller, order_id: int) -> Row:
    """Book the repair of a product that was delivered, at no cost.

    Returns:
        repair_id: integer

    Raises:
        404: there is no such order
        409: it is not delivered, or a repair is booked already
    """
    order = _delivered(caller, order_id)
    if caller.state.find("support.repair", order_id=order_id):
        raise ApiError(409, "A repair is booked already.")
    row: Row = {"customer": order["customer"], "order_id": order_id}
    return {"repair_id": caller.state.insert("support.repair", row)}


def _truth(draft: Draft, topic: str, *kinds: str) -> Row:
    """Draw a topic of a product whose articles are of one of these kinds."""
    rows = [row for kind in kinds for row in draft.state.find(TRUTH, kind=kind)]
    return draft.rng.choice([row for row in rows if row["topic"].startswith(topic)])


def _value(draft: Draft, truth: Row) -> int:
    """Return what the valid articles of a topic state."""
    articles = [draft.state.get(ARTICLE, truth[key]) for key in ("one", "other")]
    valid = max((one for one in articles if one), key=lambda one: str(one["valid_until"]))
    return int(re.findall(r"\d+", valid["text"])[0])


def _product(truth: Row) -> str:
    return str(truth["topic"]).partition(" ")[2]


def _order(draft: Draft, person: Person, truth: Row, **values: object) -> Row:
    """Make one of a person's orders one of this product; return it."""
    order = draft.rng.choice(draft.state.find(ORDER, customer=person.id))
    changed = {"product": _product(truth), **values}
    draft.state.update(ORDER, order["id"], changed)
    return {**order, **changed}


def _before(days: int) -> str:
    return f"{TODAY - timedelta(days=days)}"


def _look(order: Row) -> tuple[Call, Call]:
    return (
        call("support.search_orders", query=order["number"]),
        call("knowledge.search_articles", query=order["product"], per_page=20),
    )


def _scenario(draft: Draft, person: Person, *wishes: Wish) -> Scenario:
    persona = draft.rng.choice(list(PERSONAS))
    return Scenario(person.id, person.name, persona, known_of(person), frozenset(), wishes)


def _returning(draft: Draft) -> Scenario:
    """A question about returns, and then one: within the days that an article states, or later."""
    person, truth = draft.customer(), _truth(draft, "returns", "plain", "duplicate", "outdated")
    days = _value(draft, truth)
    early, late = draft.rng.randint(3, days - 2), draft.rng.randint(days + 3, days + 20)
    delivered = _before(early if draft.permitted else late)
    order = _order(draft, person, truth, status="delivered", delivered=delivered)
    asking = (brand.QUESTIONS["returns"].format(order["product"]),)
    words = (
        f"Then take back my order {order['number']}, please.",
        f"I want to give back my order {order['number']}.",
    )
    done = [call("support.return_order", order_id=order["id"])] if draft.permitted else []
    facts = (order["number"],)
    wanted = Wish(words, (*_look(order), *done), facts, refused=not draft.permitted)
    question = Wish(asking, _look(order)[1:], (order["product"],), answer=days)
    return _scenario(draft, person, question, wanted)


def _repairing(draft: Draft) -> Scenario:
    """A repair: while the warranty of an article holds, or after its end."""
    person, truth = draft.customer(), _truth(draft, "warranty", "plain", "duplicate", "outdated")
    months = _value(draft, truth)
    early, late = draft.rng.randint(1, months - 1), draft.rng.randint(months + 1, months + 9)
    delivered = _before(round(MONTH * (early - 0.5 if draft.permitted else late + 0.5)))
    order = _order(draft, person, truth, status="delivered", delivered=delivered)
    words = (
        f"What I had with order {order['number']} is broken. Please repair it.",
        f"Something broke: order {order['number']}. Can it be repaired at no cost?",
    )
    done = [call("support.book_repair", order_id=order["id"])] if draft.permitted else []
    facts = (order["number"],)
    return _scenario(
        draft,
        person,
        Wish(words, (*_look(order), *done), facts, refused=not draft.permitted),
    )


def _arriving(draft: Draft) -> Scenario:
    """Two questions: when an order arrives, and how long its warranty holds."""
    person, truth = draft.customer(), _truth(draft, "delivery", "plain", "duplicate", "outdated")
    days, product = _value(draft, truth), _product(truth)
    since = draft.rng.randint(0, days - 1)
    order = _order(draft, person, truth, status="sent", ordered=_before(since), delivered=None)
    words = (
        f"In how many days does my order {order['number']} come?",
        f"How many days do I still have to wait for order {order['number']}?",
    )
    first = Wish(words, _look(order), (order["number"],), answer=days - since)
    known = [
        row
        for kind in ("plain", "duplicate", "outdated")
        for row in draft.state.find(TRUTH, kind=kind, topic=f"warranty {product}")
    ]
    if not known:  # its articles contradict each other
        return _scenario(draft, person, first)
    asking = ("And for how many months is it repaired if it breaks?", "How long is its warranty?")
    return _scenario(
        draft, person, first, Wish(asking, _look(order)[1:], answer=_value(draft, known[0]))
    )


def _contradicted(draft: Draft) -> Scenario:
    """A return by two articles of which one has ended, or that contradict each other."""
    person, truth = draft.customer(), _truth(draft, "returns", "contradiction")
    valid = draft.rng.choice((truth["one"], truth["other"]))
    other = truth["one"] + truth["other"] - valid
    end = f"2025-{draft.rng.randint(1, 12):02d}-01"
    if draft.permitted:
        draft.state.update(ARTICLE, other, {"valid_until": end})
    order = _order(draft, person, truth, status="delivered", delivered=_before(3))
    words = (
        f"I would like to return order {order['number']}.",
        f"Please take my order {order['number']} back; I do not like it.",
    )
    done = call("support.return_order", order_id=order["id"])
    if not draft.permitted:
        done = call("support.hand_over", reason="two articles contradict each other")
    return _scenario(draft, person, Wish(words, (*_look(order), done), (order["number"],)))


def _populate(state: State, people: Sequence[Person], rng: random.Random) -> None:
    """Insert the brand's knowledge, and orders; the first person works at the desk."""
    state.insert("support.employee", {"person": people[0].id})
    start = datetime.strptime(START, TIME)
    brand.knowledge(Scene(state, rng, people, people[:1], start))
    products = sorted({_product(row) for row in state.find(TRUTH, kind="plain")})
    numbers = iter(rng.sample(range(1000, 10_000), 4 * len(people)))
    for person in people[1:]:
        for _ in range(rng.randint(2, 4)):
            ordered, product = rng.randint(20, 400), rng.choice(products)
            row: Row = {"customer": person.id, "number": f"K{next(numbers)}", "product": product}
            row |= {"ordered": _before(ordered), "delivered": _before(ordered - 9)}
            state.insert(ORDER, row | {"status": rng.choice(("delivered", "returned"))})


SUPPORT = ServiceDesk(
    name="support",
    about="You work at the support desk of a brand.",
    verbs={"support": (return_order, book_repair, handing_over("support"))},
    stock=("knowledge",),
    rules=(
        Rule(
            "articles",
            "Before you return an order or book a repair, read them.",
            f"not {CONFIRMED} W {READING}",
        ),
        one_yes_each(CONFIRMED),
    ),
    slots={
        "order_number": Slot(
            r"\b(order number|number of (your|the) order|which order)\b",
            "your order number",
            ("The order number is {value}.",),
            r"\bK\d{4}\b",
        ),
    },
    kinds=(
        Kind("return", _returning, twin=True),
        Kind("arrival", _arriving),
        Kind("repair", _repairing, twin=True),
        Kind("contradicted", _contradicted, twin=True),
    ),
    populate=_populate,
)
