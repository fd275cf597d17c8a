"""What a shop can do: sell what lies in the cart, cancel, and take back."""

from __future__ import annotations

from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock.charging import charge, pay_back

CART, ORDER, LINE = "shop.cart_item", "shop.order", "shop.line"


def _restock(call: Caller, product_id: int, change: int) -> None:
    product = call.state.get("shop.product", product_id)
    assert product is not None  # products are never deleted
    if product["stock"] + change < 0:
        raise ApiError(409, f"There are only {product['stock']} of '{product['name']}'.")
    call.state.update("shop.product", product_id, {"stock": product["stock"] + change})


@verb
def checkout(call: Caller, card_id: int) -> Row:
    """Order all that lies in the cart, and pay by a card.

    Args:
        card_id: the id of a card of the app 'bank'

    Returns:
        order_id: integer
        total: number

    Raises:
        404: you have no such card
        409: the cart is empty, something is sold out, or the card cannot be charged
    """
    items = call.state.find(CART, owner=call.person)
    if not items:
        raise ApiError(409, "The cart is empty.")
    products = [call.state.get("shop.product", item["product_id"]) for item in items]
    bought = [(item, product) for item, product in zip(items, products, strict=True) if product]
    total = round(sum(item["quantity"] * product["price"] for item, product in bought), 2)
    charge(call, card_id, total)
    row: Row = {"owner": call.person, "number": f"S-{1001 + call.state.count(ORDER)}"}
    row |= {"card_id": card_id, "total": total, "status": "placed", "placed": call.now}
    order = call.state.insert(ORDER, row)
    for item, product in bought:
        _restock(call, product["id"], -item["quantity"])
        row = {"owner": call.person, "order_id": order, "product_id": product["id"]}
        row |= {"product": product["name"], "quantity": item["quantity"]}
        call.state.insert(LINE, row | {"price": product["price"]})
        call.state.delete(CART, item["id"])
    return {"order_id": order, "total": total}


@verb
def cancel_order(call: Caller, order_id: int) -> Row:
    """Cancel an order that was not delivered yet; the money goes back.

    Returns:
        order_id: integer
        paid_back: number

    Raises:
        404: you have no such order
        409: it was delivered or cancelled
    """
    order = call.own(ORDER, order_id)
    if order["status"] != "placed":
        raise ApiError(409, f"This order is {order['status']}.")
    for line in call.state.find(LINE, order_id=order_id):
        _restock(call, line["product_id"], line["quantity"])
    pay_back(call, order["card_id"], order["total"])
    call.state.update(ORDER, order_id, {"status": "cancelled"})
    return {"order_id": order_id, "paid_back": order["total"]}


@verb
def return_product(
    call: Caller, line_id: int, reason: Literal["damaged", "wrong size", "late", "not needed"]
) -> Row:
    """Return a product of an order that was delivered; the money goes back.

    Args:
        line_id: the product's line of the order

    Returns:
        refund_id: integer
        amount: number

    Raises:
        404: you have no such line
        409: it was not delivered, or went back already
    """
    line = call.own(LINE, line_id)
    order = call.own(ORDER, line["order_id"])
    if order["status"] != "delivered":
        raise ApiError(409, f"This order is {order['status']}.")
    if call.state.find("shop.refund", line_id=line_id):
        raise ApiError(409, "This went back already.")
    amount = round(line["quantity"] * line["price"], 2)
    pay_back(call, order["card_id"], amount)
    row = {"owner": call.person, "line_id": line_id, "reason": reason, "amount": amount}
    id = call.state.insert("shop.refund", row | {"made": call.now})
    return {"refund_id": id, "amount": amount}


VERBS = (checkout, cancel_order, return_product)
