"""What life services do beyond their rows: order meals, reserve tables, and cancel both."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import Column, refusal
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock.charging import charge, pay_back

MEAL, PLACE, ORDER = "delivery.meal", "delivery.place", "delivery.order"
VENUE, RESERVATION = "services.venue", "services.reservation"
MOST_MEALS = 20  # of one order


@verb
def order_meal(caller: Caller, meal_id: int, quantity: int, place_id: int, card_id: int) -> Row:
    """Order a meal, to be brought to one of your places.

    Args:
        card_id: the id of a card of the app 'bank'

    Returns:
        order_id: integer
        total: number

    Raises:
        404: there is no such meal, or you have no such place or card
        409: the card cannot be charged
    """
    if not 1 <= quantity <= MOST_MEALS:
        raise ApiError(422, f"One can order 1 to {MOST_MEALS} of a meal.")
    meal = caller.read(MEAL, meal_id)
    caller.own(PLACE, place_id)
    total = round(quantity * meal["price"], 2)
    charge(caller, card_id, total)
    row: Row = {"owner": caller.person, "meal_id": meal_id, "meal": meal["name"]}
    row |= {"quantity": quantity, "place_id": place_id, "card_id": card_id, "total": total}
    return {"order_id": caller.state.insert(ORDER, row | {"status": "placed"}), "total": total}


@verb
def cancel_order(caller: Caller, order_id: int) -> Row:
    """Cancel an order of meals; the money goes back.

    Returns:
        paid_back: number

    Raises:
        404: you have no such order
        409: it is cancelled already
    """
    order = caller.own(ORDER, order_id)
    if order["status"] != "placed":
        raise ApiError(409, "The order is cancelled already.")
    pay_back(caller, order["card_id"], order["total"])
    caller.state.update(ORDER, order_id, {"status": "cancelled"})
    return {"paid_back": order["total"]}


@verb
def reserve_table(caller: Caller, venue_id: int, starts: str, guests: int, card_id: int) -> Row:
    """Reserve a table, and pay the deposit for each guest.

    Args:
        starts: such as 2026-03-31 19:30
        card_id: the id of a card of the app 'bank', which pays the deposit

    Returns:
        reservation_id: integer
        paid: number

    Raises:
        404: there is no such venue, or you have no such card
        409: no table is large enough, or the card cannot be charged
    """
    if (problem := refusal(Column(type="time"), starts)) or starts <= caller.now:
        raise ApiError(422, f"'starts' {problem or 'must lie in the future'}.")
    venue = caller.read(VENUE, venue_id)
    if guests < 1:
        raise ApiError(422, "A table is for at least one guest.")
    if guests > venue["largest"]:
        raise ApiError(409, f"The largest table there is for {venue['largest']}.")
    paid = round(guests * venue["deposit"], 2)
    charge(caller, card_id, paid)
    row: Row = {"owner": caller.person, "venue_id": venue_id, "venue": venue["name"]}
    row |= {"starts": starts, "guests": guests, "card_id": card_id, "paid": paid}
    id = caller.state.insert(RESERVATION, row | {"status": "reserved"})
    return {"reservation_id": id, "paid": paid}


@verb
def cancel_reservation(caller: Caller, reservation_id: int) -> Row:
    """Cancel a table; the deposit goes back.

    Returns:
        paid_back: number

    Raises:
        404: you have no such reservation
        409: it is cancelled already
    """
    table = caller.own(RESERVATION, reservation_id)
    if table["status"] != "reserved":
        raise ApiError(409, "The reservation is cancelled already.")
    pay_back(caller, table["card_id"], table["paid"])
    caller.state.update(RESERVATION, reservation_id, {"status": "cancelled"})
    return {"paid_back": table["paid"]}
