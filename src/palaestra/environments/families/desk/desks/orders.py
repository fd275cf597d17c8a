"""The desk of a shop: orders, returns and exchanges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.composing.goal import Call, call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.names import STREETS, TOWNS
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

ORDER = "orders.order"
WINDOW = 30  # days in which a delivered order can be returned
LIMIT = 200  # the highest price of something broken that the desk takes back by itself
PRODUCTS = {
    "kettle": (39.0, 250.0), "lamp": (24.5, 310.0), "chair": (89.0, 420.0),
    "backpack": (55.0, 230.0), "headphones": (79.0, 349.0), "blanket": (32.0, 260.0),
}  # fmt: skip
"""Kinds of products, with the price of a plain one and of a fine one."""
COLOURS = ("blue", "green", "red", "grey")


def _order(caller: Caller, order_id: int, *statuses: str) -> Row:
    """Return an order in one of the statuses; raises ApiError 404 or 409."""
    order = caller.own(ORDER, order_id)
    if order["status"] not in statuses:
        raise ApiError(409, f"The order is {order['status']}, not {' or '.join(statuses)}.")
    return order


@reading
def verify_customer(caller: Caller, email: str, postcode: str) -> Row:
    """Check who is calling by their email address and postcode.

    Returns:
        customer: integer
        name: string
        member: boolean

    Raises:
        404: no customer has both
    """
    found = caller.state.find("orders.customer", email=email, postcode=postcode)
    if not found:
        raise ApiError(404, "No customer has that email address and postcode.")
    row = found[0]
    return {"customer": row["person"], "name": row["name"], "member": row["member"]}


@verb
def cancel_order(caller: Caller, order_id: int) -> Row:
    """Cancel an order that was not delivered, and refund it.

    Returns:
        refunded: number

    Raises:
        404: there is no such order
        409: it was delivered, or is over
    """
    order = _order(caller, order_id, "processing", "shipped")
    return _refund(caller, order, "cancelled")


@verb
def return_order(caller: Caller, order_id: int) -> Row:
    """Take a delivered order back, and refund it.

    Returns:
        refunded: number

    Raises:
        404: there is no such order
        409: it is not delivered, or is over
    """
    return _refund(caller, _order(caller, order_id, "delivered"), "returned")


def _refund(caller: Caller, order: Row, why: str) -> Row:
    caller.state.update(ORDER, order["id"], {"status": why})
    row = {"customer": order["customer"], "order_id": order["id"], "amount": order["price"]}
    caller.state.insert("orders.refund", row | {"reason": why})
    return {"refunded": order["price"]}


@verb
def send_label(caller: Caller, order_id: int) -> Row:
    """Send the customer a label for a parcel that comes back.

    Returns:
        sent: boolean

    Raises:
        404: there is no such order
        409: nothing of it comes back
    """
    order = _order(caller, order_id, "returned", "exchanged")
    caller.state.insert("orders.label", {"customer": order["customer"], "order_id": order["id"]})
    return {"sent": True}


@verb
def exchange_order(caller: Caller, order_id: int, product_id: int) -> Row:
    """Exchange a delivered order for another product.

    Returns:
        product: string

    Raises:
        404: there is no such order or product
        409: it is not delivered, or the product is not in stock
    """
    order = _order(caller, order_id, "delivered")
    product = caller.read("orders.product", product_id)
    if not product["in_stock"]:
        raise ApiError(409, f"'{product['name']}' is not in stock.")
    caller.state.update(ORDER, order_id, {"status": "exchanged"})
    row = {"customer": order["customer"], "order_id": order_id, "product_id": product_id}
    caller.state.insert("orders.exchange", row)
    return {"product": product["name"]}


@verb
def change_address(caller: Caller, order_id: int, address: str) -> Row:
    """Change where an order goes that is still processing.

    Returns:
        address: string

    Raises:
        404: there is no such order
        409: it is on its way, or over
    """
    _order(caller, order_id, "processing")
    caller.state.update(ORDER, order_id, {"address": address[:120]})
    return {"address": address[:120]}


CHANGES = r"/orders\.(cancel_order|return_order|exchange_order|change_address|send_label)/"
CONFIRMED = r"/orders\.(cancel_order|return_order|exchange_order)/"


def _scenario(
    draft: Draft, person: Person, order: Row, *wishes: Wish, change: Wish | None = None
) -> Scenario:
    """Return the scenario of somebody who knows the number of their order, if it has one."""
    customer = draft.state.find("orders.customer", person=person.id)[0]
    known = known_of(person, postcode=customer["postcode"])
    stated = any(order["number"] in wish.facts for wish in wishes)
    if stated:
        known["order_number"] = order["number"]
    forgotten = frozenset() if stated else frozenset({"order_number"})
    persona = draft.rng.choice(list(PERSONAS))
    return Scenario(person.id, person.name, persona, known, forgotten, wishes, change)


def _own(draft: Draft, person: Person, status: str) -> Row:
    """Give one of a person's orders a status; return it."""
    rows = draft.state.find(ORDER, customer=person.id)
    order = draft.rng.choice(rows)
    draft.state.update(ORDER, order["id"], {"status": status, "delivered": None})
    return {**order, "status": status}


def _delivered(draft: Draft, person: Person, days: int) -> Row:
    order = _own(draft, person, "delivered")
    day = (datetime.strptime(START, TIME) - timedelta(days=days)).strftime("%Y-%m-%d")
    draft.state.update(ORDER, order["id"], {"delivered": day})
    return order


def _look(order: Row) -> Call:
    return call("orders.search_orders", query=order["number"])


def _cancelling(draft: Draft) -> Scenario:
    """A cancellation: of an order that is processing, or that has shipped."""
    person = draft.customer()
    order = _own(draft, person, "processing" if draft.permitted else "shipped")
    words = (
        f"Please cancel my order {order['number']}.",
        f"I do not need the {order['product']} any more, order {order['number']}. Cancel it.",
    )
    calls = (_look(order), *([call("orders.cancel_order", order_id=order["id"])] * draft.permitted))
    facts = (order["number"],)
    return _scenario(draft, person, order, Wish(words, calls, facts, not draft.permitted))


def _returning(draft: Draft) -> Scenario:
    """A return: within the time for it, or later."""
    person = draft.customer()
    early, late = draft.rng.randint(3, WINDOW - 2), draft.rng.randint(WINDOW + 3, 60)
    order = _delivered(draft, person, early if draft.permitted else late)
    words = (
        f"I would like to send back the {order['product']}, order {order['number']}.",
        f"Can I return my order {order['number']}? I want my money back.",
    )
    done = [call(f"orders.{n}", order_id=order["id"]) for n in ("return_order", "send_label")]
    calls = (_look(order), *(done if draft.permitted else []))
    facts = (order["number"],)
    return _scenario(draft, person, order, Wish(words, calls, facts, not draft.permitted))


def _broken(draft: Draft) -> Scenario:
    """Something that arrived broken: cheap enough for the desk, or for a colleague."""
    person = draft.customer()
    order = _delivered(draft, person, draft.rng.randint(2, 60))
    cheap, dear = draft.rng.randint(20, LIMIT), draft.rng.randint(LIMIT + 10, 400)
    draft.state.update(ORDER, order["id"], {"price": float(cheap if draft.permitted else dear)})
    words = (
        f"My order {order['number']} has arrived broken. I want my money back.",
        f"The {order['product']} of order {order['number']} was broken when it came. Refund it.",
    )
    done = [call(f"orders.{n}", order_id=order["id"]) for n in ("return_order", "send_label")]
    if not draft.permitted:
        done = [call("orders.hand_over", reason="something dear is broken")]
    facts = (order["number"],)
    return _scenario(draft, person, order, Wish(words, (_look(order), *done), facts))


def _exchanging(draft: Draft) -> Scenario:
    """An exchange, for which the user wants another product once it comes to it."""
    person = draft.customer()
    order = _delivered(draft, person, draft.rng.randint(2, 60))
    stock = draft.state.find("orders.product", in_stock=1)
    first, second = draft.rng.sample([r for r in stock if r["name"] != order["product"]], 2)

    def wish(product: Row, words: tuple[str, ...], facts: tuple[str, ...]) -> Wish:
        find = call("orders.search_products", query=product["name"])
        change = call("orders.exchange_order", order_id=order["id"], product_id=product["id"])
        return Wish(words, (_look(order), find, change), (*facts, product["name"]))

    opening = (
        f"I want to exchange my order {order['number']} for the {first['name']}.",
        f"Could I have the {first['name']} instead of order {order['number']}?",
    )
    changed = (f"I would rather have the {second['name']}.", f"Make it the {second['name']}.")
    wanted = wish(first, opening, (order["number"],))
    return _scenario(draft, person, order, wanted, change=wish(second, changed, ()))


def _moving(draft: Draft) -> Scenario:
    """A new address for an order whose number is forgotten, and then a question."""
    person = draft.customer()
    order = _own(draft, person, "processing")
    other = draft.rng.choice(
        [r for r in draft.state.find(ORDER, customer=person.id) if r["id"] != order["id"]]
    )
    address = f"{draft.rng.randint(10, 99)} {draft.rng.choice(STREETS)}, {draft.rng.choice(TOWNS)}"
    words = (
        f"I have moved. My order of the {order['product']} must go to {address}.",
        f"Please send the {order['product']} that I ordered to {address}.",
    )
    listed = call("orders.list_orders", customer=person.id, per_page=20)
    change = call("orders.change_address", order_id=order["id"], address=address)
    asking = (
        f"What did I pay for the {other['product']}?",
        f"Could you tell me the price of my order of the {other['product']}?",
    )
    moving = Wish(words, (listed, change), (order["product"], address))
    question = Wish(asking, (listed,), (other["product"],), answer=other["price"])
    return _scenario(draft, person, order, moving, question)


def _populate(state: State, people: Sequence[Person], rng: random.Random) -> None:
    """Insert customers and their orders; the first person works at the desk."""
    state.insert("orders.employee", {"person": people[0].id})
    for colour in COLOURS:
        for name, (plain, fine) in PRODUCTS.items():
            for price, form in ((plain, ""), (fine, "designer ")):
                row = {"name": f"{colour} {form}{name}", "price": price}
                state.insert("orders.product", row | {"in_stock": rng.random() < 0.8})
    products = state.rows("orders.product")
    numbers = iter(rng.sample(range(1000, 10_000), 8 * len(people)))
    for person in people[1:]:
        row = {"person": person.id, "name": person.name, "email": person.email}
        row |= {"postcode": f"{rng.randint(10_000, 99_999)}", "member": rng.random() < 0.3}
        state.insert("orders.customer", row)
        for product in rng.sample(products, rng.randint(3, 6)):
            days = rng.randint(1, 90)
            status = rng.choice(("processing", "shipped", "delivered", "delivered"))
            at = datetime.strptime(START, TIME) - timedelta(days=days)
            row = {"customer": person.id, "number": f"W{next(numbers)}", "status": status}
            row |= {"product": product["name"], "price": product["price"]}
            row["delivered"] = at.strftime("%Y-%m-%d") if status == "delivered" else None
            state.insert(ORDER, row | {"address": person.address})


def _identify(known: Mapping[str, str]) -> Call:
    """Return the call that checks who somebody is who knows this."""
    return call("orders.verify_customer", email=known["email"], postcode=known["postcode"])


ORDERS = ServiceDesk(
    name="orders",
    about="You work at the desk of a shop.",
    verbs={
        "orders": (
            verify_customer,
            cancel_order,
            return_order,
            send_label,
            exchange_order,
            change_address,
            handing_over("orders"),
        )
    },
    rules=(
        Rule(
            "identity",
            "Before any change, check who is calling: verify the customer by email address and "
            "postcode.",
            f"not {CHANGES} W 'orders.verify_customer'",
        ),
        one_yes_each(CONFIRMED),
        Rule(
            "label",
            "After a return, send the label for the parcel.",
            "G('orders.return_order' -> F 'orders.send_label')",
        ),
    ),
    slots={
        "email": Slot(
            r"\be-?mail\b",
            "your email address",
            ("My email address is {value}.", "It is {value}.", "{value}."),
            r"\S+@\S+\w",
        ),
        "postcode": Slot(
            r"\b(post ?code|zip)\b",
            "your postcode",
            ("My postcode is {value}.", "The postcode: {value}."),
        ),
        "order_number": Slot(
            r"\b(order number|number of (your|the) order|which order)\b",
            "your order number",
            ("The order number is {value}.",),
            r"\bW\d{4}\b",
        ),
    },
    identity=("email", "postcode"),
    kinds=(
        Kind("cancel", _cancelling, twin=True),
        Kind("exchange", _exchanging),
        Kind("return", _returning, twin=True),
        Kind("move", _moving),
        Kind("broken", _broken, twin=True),
    ),
    populate=_populate,
    identify=_identify,
)
