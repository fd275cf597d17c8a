"""The desk of a hotel: bookings and what goes with them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.composing.goal import Call, call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row, State
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

BOOKING = "hotel.booking"
LONGEST = 14  # nights to which the desk extends a stay by itself
ROOMS = {"single": 70.0, "double": 95.0, "family": 130.0, "garden suite": 180.0}
"""The price of a night in each kind of room."""
SERVICES = {"breakfast": 12.0, "parking": 8.0}  # a night


def _booked(caller: Caller, booking_id: int) -> Row:
    """Return a booking that stands; raises ApiError 404 or 409."""
    booking = caller.own(BOOKING, booking_id)
    if booking["status"] != "booked":
        raise ApiError(409, "The booking is cancelled.")
    return booking


def _price(caller: Caller, room_id: int, nights: int) -> float:
    if nights < 1:
        raise ApiError(422, "A stay has at least one night.")
    return float(caller.read("hotel.room", room_id)["price"] * nights)


@reading
def verify_guest(caller: Caller, name: str, birthday: str) -> Row:
    """Check who is calling by their name and birthday.

    Args:
        birthday: such as 1990-05-17

    Returns:
        guest: integer
        gold: boolean

    Raises:
        404: no guest has both
    """
    found = caller.state.find("hotel.guest", name=name, birthday=birthday)
    if not found:
        raise ApiError(404, "No guest has that name and birthday.")
    return {"guest": found[0]["person"], "gold": found[0]["gold"]}


@reading
def quote_change(caller: Caller, booking_id: int, room_id: int, nights: int) -> Row:
    """Say what a booking would cost with that room and number of nights.

    Returns:
        price: number

    Raises:
        404: there is no such booking or room
        409: the booking is cancelled
    """
    _booked(caller, booking_id)
    return {"price": _price(caller, room_id, nights)}


@verb
def change_booking(caller: Caller, booking_id: int, room_id: int, nights: int) -> Row:
    """Change the room and the number of nights of a booking.

    Returns:
        price: number

    Raises:
        404: there is no such booking or room
        409: the booking is cancelled
    """
    _booked(caller, booking_id)
    price = _price(caller, room_id, nights)
    caller.state.update(BOOKING, booking_id, {"room_id": room_id, "nights": nights})
    return {"price": price}


@verb
def cancel_booking(caller: Caller, booking_id: int) -> Row:
    """Cancel a booking.

    Returns:
        status: string

    Raises:
        404: there is no such booking
        409: it is cancelled already
    """
    _booked(caller, booking_id)
    caller.state.update(BOOKING, booking_id, {"status": "cancelled"})
    return {"status": "cancelled"}


@verb
def add_service(caller: Caller, booking_id: int, service: Literal["breakfast", "parking"]) -> Row:
    """Add breakfast or parking to all nights of a booking.

    Returns:
        charged: number

    Raises:
        404: there is no such booking
        409: the booking is cancelled, or has the service already
    """
    booking = _booked(caller, booking_id)
    if caller.state.find("hotel.charge", booking_id=booking_id, what=service):
        raise ApiError(409, f"The booking has {service} already.")
    amount = SERVICES[service] * booking["nights"]
    row = {"guest": booking["guest"], "booking_id": booking_id, "amount": amount}
    caller.state.insert("hotel.charge", row | {"what": service})
    return {"charged": amount}


@verb
def allow_late_checkout(caller: Caller, booking_id: int) -> Row:
    """Let a guest leave at three in the afternoon.

    Returns:
        late_checkout: boolean

    Raises:
        404: there is no such booking
        409: the booking is cancelled
    """
    _booked(caller, booking_id)
    caller.state.update(BOOKING, booking_id, {"late_checkout": True})
    return {"late_checkout": True}


CHANGES = r"/hotel\.(change_booking|cancel_booking|add_service|allow_late_checkout)/"
CONFIRMED = r"/hotel\.(change_booking|cancel_booking|add_service)/"


def _begin(draft: Draft) -> tuple[Person, Row]:
    """Draw a guest and a booking of theirs that stands."""
    person = draft.customer()
    booking = draft.rng.choice(draft.state.find(BOOKING, guest=person.id))
    values = {"status": "booked", "late_checkout": False}
    draft.state.update(BOOKING, booking["id"], values)
    return person, {**booking, **values}


def _scenario(
    draft: Draft, person: Person, booking: Row, *wishes: Wish, change: Wish | None = None
) -> Scenario:
    """Return the scenario of somebody who knows the number of their booking, if it is said."""
    stated = any(booking["number"] in wish.facts for wish in wishes)
    known = known_of(person, **({"booking_number": booking["number"]} if stated else {}))
    forgotten = frozenset() if stated else frozenset({"booking_number"})
    persona = draft.rng.choice(list(PERSONAS))
    return Scenario(person.id, person.name, persona, known, forgotten, wishes, change)


def _look(booking: Row) -> Call:
    return call("hotel.search_bookings", query=booking["number"])


def _cancelling(draft: Draft) -> Scenario:
    """A cancellation, at a rate that allows it or not."""
    person, booking = _begin(draft)
    rate = "flexible" if draft.permitted else "saver"
    draft.state.update(BOOKING, booking["id"], {"rate": rate})
    words = (
        f"Please cancel my booking {booking['number']}.",
        f"I cannot come. Cancel the booking {booking['number']} for me.",
    )
    cancel = call("hotel.cancel_booking", booking_id=booking["id"])
    calls = (_look(booking), *([cancel] if draft.permitted else []))
    wish = Wish(words, calls, (booking["number"],), not draft.permitted)
    return _scenario(draft, person, booking, wish)


def _late(draft: Draft) -> Scenario:
    """Late checkout, for a gold guest or another one."""
    person, booking = _begin(draft)
    guest = draft.state.find("hotel.guest", person=person.id)[0]
    draft.state.update("hotel.guest", guest["id"], {"gold": draft.permitted})
    words = (
        f"May I leave later on the last day of booking {booking['number']}?",
        f"I would like late checkout, for booking {booking['number']}.",
    )
    allow = call("hotel.allow_late_checkout", booking_id=booking["id"])
    calls = (_look(booking), *([allow] if draft.permitted else []))
    wish = Wish(words, calls, (booking["number"],), not draft.permitted)
    return _scenario(draft, person, booking, wish)


def _extending(draft: Draft) -> Scenario:
    """More nights: as many as the desk may give, or a matter for a colleague."""
    person, booking = _begin(draft)
    more = draft.rng.randint(2, 4)
    short, long = draft.rng.randint(1, LONGEST - 5), draft.rng.randint(LONGEST - 1, LONGEST)
    nights = short if draft.permitted else long
    draft.state.update(BOOKING, booking["id"], {"nights": nights})
    count = ("two", "three", "four")[more - 2]
    words = (
        f"I want to stay {count} nights longer, with booking {booking['number']}.",
        f"Can you add {count} more nights to my booking {booking['number']}?",
    )
    given = {"booking_id": booking["id"], "room_id": booking["room_id"], "nights": nights + more}
    done = [Call("hotel.quote_change", given), Call("hotel.change_booking", given)]
    if not draft.permitted:
        done = [call("hotel.hand_over", reason="a stay of more than 14 nights")]
    wish = Wish(words, (_look(booking), *done), (booking["number"], count))
    return _scenario(draft, person, booking, wish)


def _moving(draft: Draft) -> Scenario:
    """Another room, and then yet another one; the guest wants to know the price."""
    person, booking = _begin(draft)
    rooms = [row for row in draft.state.rows("hotel.room") if row["id"] != booking["room_id"]]
    first, second = draft.rng.sample(rooms, 2)

    def wish(room: Row, words: tuple[str, ...], facts: tuple[str, ...]) -> Wish:
        given = {"booking_id": booking["id"], "room_id": room["id"], "nights": booking["nights"]}
        calls = (
            _look(booking), Call("hotel.quote_change", given), Call("hotel.change_booking", given)
        )  # fmt: skip
        price = room["price"] * booking["nights"]
        return Wish(words, calls, (*facts, room["name"]), answer=price)

    opening = (
        f"I would like the {first['name']} for booking {booking['number']}. What does it cost?",
        f"Put my booking {booking['number']} into the {first['name']}, and tell me the price.",
    )
    changed = (
        f"I would rather have the {second['name']}. What does that cost?",
        f"Make it the {second['name']}, and tell me the price.",
    )
    wanted = wish(first, opening, (booking["number"],))
    return _scenario(draft, person, booking, wanted, change=wish(second, changed, ()))


def _serving(draft: Draft) -> Scenario:
    """Something beside the room, for a booking whose number is forgotten, and then a question."""
    person, booking = _begin(draft)
    service = draft.rng.choice(list(SERVICES))
    words = (
        f"I would like {service} for my stay from {booking['arrives']}.",
        f"Please add {service} to my booking; I arrive on {booking['arrives']}.",
    )
    listed = call("hotel.list_bookings", guest=person.id, per_page=20)
    add = call("hotel.add_service", booking_id=booking["id"], service=service)
    asking = ("What does that cost in all?", "How much is that for the whole stay?")
    first = Wish(words, (listed, add), (service, booking["arrives"]))
    second = Wish(asking, (), (), answer=SERVICES[service] * booking["nights"])
    return _scenario(draft, person, booking, first, second)


def _populate(state: State, people: Sequence[Person], rng: random.Random) -> None:
    """Insert guests and their bookings; the first person works at the desk."""
    state.insert("hotel.employee", {"person": people[0].id})
    for name, price in ROOMS.items():
        state.insert("hotel.room", {"name": name, "price": price})
    numbers = iter(rng.sample(range(1000, 10_000), 4 * len(people)))
    for person in people[1:]:
        row = {"person": person.id, "name": person.name, "birthday": person.birthday}
        state.insert("hotel.guest", row | {"gold": rng.random() < 0.4})
        for month in rng.sample(range(4, 12), rng.randint(2, 4)):
            row = {"guest": person.id, "number": f"H{next(numbers)}"}
            row |= {"room_id": rng.randint(1, len(ROOMS)), "nights": rng.randint(1, 9)}
            row |= {"arrives": f"2026-{month:02d}-{rng.randint(1, 28):02d}"}
            row |= {"rate": rng.choice(("flexible", "saver")), "status": "booked"}
            state.insert(BOOKING, row | {"late_checkout": False})


def _identify(known: Mapping[str, str]) -> Call:
    """Return the call that checks who somebody is who knows this."""
    return call("hotel.verify_guest", name=known["name"], birthday=known["birthday"])


HOTEL = ServiceDesk(
    name="hotel",
    about="You work at the desk of a hotel.",
    verbs={
        "hotel": (
            verify_guest,
            quote_change,
            change_booking,
            cancel_booking,
            add_service,
            allow_late_checkout,
            handing_over("hotel"),
        )
    },
    rules=(
        Rule(
            "identity",
            "Before any change, check who is calling: verify the guest by name and birthday.",
            f"not {CHANGES} W 'hotel.verify_guest'",
        ),
        one_yes_each(CONFIRMED),
        Rule(
            "quote",
            "Before a booking is changed, make a quote for the change.",
            "not 'hotel.change_booking' W 'hotel.quote_change'",
        ),
        Rule(
            "cancelled last",
            "Once a booking is cancelled, change nothing else in the conversation.",
            f"G('hotel.cancel_booking' -> N G not {CHANGES})",
        ),
    ),
    slots={
        "name": Slot(
            r"\b(your|full|the|last) (full )?name\b",
            "your name",
            ("My name is {value}.", "{value}."),
        ),
        "birthday": Slot(
            r"\b(birthday|date of birth|birth date)\b",
            "your birthday",
            ("I was born on {value}.", "My birthday is {value}."),
        ),
        "booking_number": Slot(
            r"\b(booking number|number of (your|the) booking|which booking)\b",
            "your booking number",
            ("The booking number is {value}.",),
            r"\bH\d{4}\b",
        ),
    },
    identity=("name", "birthday"),
    kinds=(
        Kind("cancel", _cancelling, twin=True),
        Kind("room", _moving),
        Kind("late checkout", _late, twin=True),
        Kind("service", _serving),
        Kind("longer", _extending, twin=True),
    ),
    populate=_populate,
    identify=_identify,
)
