"""What a travel agency can do: book, and cancel before the day."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import Column, refusal
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock.charging import charge, pay_back

TRIP, BOOKING, STAY = "travel.trip", "travel.booking", "travel.stay"


def _within(value: int, most: int, what: str) -> None:
    if not 1 <= value <= most:
        raise ApiError(422, f"One can book 1 to {most} {what}.")


def _cancel(call: Caller, table: str, row: Row, begins: str) -> Row:
    """Cancel what was booked, if it has not begun, and pay it back."""
    if row["status"] != "booked":
        raise ApiError(409, f"This is {row['status']}.")
    if begins <= call.now:
        raise ApiError(409, "It has begun.")
    pay_back(call, row["card_id"], row["total"])
    call.state.update(table, row["id"], {"status": "cancelled"})
    return {"paid_back": row["total"]}


@verb
def book_trip(call: Caller, trip_id: int, card_id: int, seats: int = 1) -> Row:
    """Book seats on a train or a flight.

    Args:
        card_id: the id of a card of the app 'bank'

    Returns:
        booking_id: integer
        total: number

    Raises:
        404: there is no such trip, or you have no such card
        409: too few seats are left, it has left, or the card cannot be charged
    """
    _within(seats, 9, "seats")
    trip = call.read(TRIP, trip_id)
    if trip["seats"] < seats or trip["departs"] <= call.now:
        raise ApiError(409, f"This trip has left, or has only {trip['seats']} seats.")
    total = round(seats * trip["price"], 2)
    charge(call, card_id, total)
    call.state.update(TRIP, trip_id, {"seats": trip["seats"] - seats})
    row = {"owner": call.person, "trip_id": trip_id, "code": trip["code"], "seats": seats}
    row |= {"card_id": card_id, "total": total, "status": "booked", "booked": call.now}
    return {"booking_id": call.state.insert(BOOKING, row), "total": total}


@verb
def cancel_booking(call: Caller, booking_id: int) -> Row:
    """Cancel seats on a trip that has not left; the money goes back.

    Returns:
        paid_back: number

    Raises:
        404: you have no such booking
        409: it is cancelled, or the trip has left
    """
    booking = call.own(BOOKING, booking_id)
    trip = call.read(TRIP, booking["trip_id"])
    answer = _cancel(call, BOOKING, booking, trip["departs"])
    call.state.update(TRIP, trip["id"], {"seats": trip["seats"] + booking["seats"]})
    return answer


@verb
def book_hotel(call: Caller, hotel_id: int, arrival: str, nights: int, card_id: int) -> Row:
    """Book a room in a hotel.

    Args:
        arrival: a day, such as 2026-03-31
        card_id: the id of a card of the app 'bank'

    Returns:
        stay_id: integer
        total: number

    Raises:
        404: there is no such hotel, or you have no such card
        409: the card cannot be charged
    """
    _within(nights, 30, "nights")
    if (problem := refusal(Column(type="date"), arrival)) or arrival < call.now[:10]:
        raise ApiError(422, f"'arrival' {problem or 'must not lie in the past'}.")
    hotel = call.read("travel.hotel", hotel_id)
    total = round(nights * hotel["price"], 2)
    charge(call, card_id, total)
    row = {"owner": call.person, "hotel_id": hotel_id, "hotel": hotel["name"], "arrival": arrival}
    row |= {"nights": nights, "card_id": card_id, "total": total, "status": "booked"}
    return {"stay_id": call.state.insert(STAY, row), "total": total}


@verb
def cancel_stay(call: Caller, stay_id: int) -> Row:
    """Cancel nights in a hotel before the day of arrival; the money goes back.

    Returns:
        paid_back: number

    Raises:
        404: you have no such stay
        409: it is cancelled, or has begun
    """
    stay = call.own(STAY, stay_id)
    return _cancel(call, STAY, stay, stay["arrival"])


VERBS = (book_trip, cancel_booking, book_hotel, cancel_stay)
