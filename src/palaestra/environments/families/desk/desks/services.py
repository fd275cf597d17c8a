"""Life services: meals that are brought, tables in restaurants, and journeys.

Three domains share one pool of tools, with the travel agency and the bank of the apps. The agent
acts in the name of the user, who leaves out what they take for granted, changes their mind, and
has up to three requests in a conversation, where the second depends on the first. After VitaBench
(He et al. 2025); ours: the services, people and tasks, which are generated, and the verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from palaestra.environments.families.apps.composing.goal import Call, call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.desk.desks import life_services
from palaestra.environments.families.desk.desks.confirming import one_yes_each
from palaestra.environments.families.desk.desks.handing_over import handing_over
from palaestra.environments.families.desk.desks.life_services import MEAL, RESERVATION, VENUE
from palaestra.environments.families.desk.desks.life_world import ALLERGENS, populate
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

COUNTS = {2: "two", 3: "three", 4: "four"}
TIMES = ("18:30", "19:00", "19:30", "20:00")
NOTES = call("services.list_notes")
CARDS = call("bank.list_cards")
PLACES = call("delivery.list_places")
ROUTE = ("kind", "origin", "destination", "day")
PAID = r"delivery\.order_meal|services\.reserve_table|travel\.book_trip|travel\.book_hotel"
CANCELLED = (
    r"delivery\.cancel_order|services\.cancel_reservation|travel\.cancel_booking"
    r"|travel\.cancel_stay"
)
CONFIRMED = f"/{PAID}|{CANCELLED}/"


@dataclass(slots=True)
class _Request:
    """A user whose requests are being drawn, with what they tell only when asked."""

    draft: Draft
    person: Person
    card: Row
    known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, draft: Draft) -> _Request:
        person = draft.customer()
        card = draft.rng.choice(draft.state.find("bank.card", owner=person.id))
        return cls(draft, person, card, {"card": card["digits"]})

    def scenario(self, *wishes: Wish, change: Wish | None = None) -> Scenario:
        """Return the scenario of these requests."""
        persona = self.draft.rng.choice(list(PERSONAS))
        known = known_of(self.person, **self.known)
        name = self.person.name
        return Scenario(self.person.id, name, persona, known, frozenset(), wishes, change)

    def note(self, topic: str) -> Row:
        return self.draft.state.find("services.note", owner=self.person.id, topic=topic)[0]

    def write(self, topic: str, value: str) -> None:
        """Give a note of the user another value."""
        self.draft.state.update("services.note", self.note(topic)["id"], {"value": value})

    def meals(self, number: int) -> list[Row]:
        """Draw meals that contain nothing to which the user is allergic."""
        allergy = self.note("allergy")["value"]
        safe = [meal for meal in self.draft.state.rows(MEAL) if allergy not in meal["contains"]]
        return self.draft.rng.sample(safe, number)

    def meal(self, meal: Row, quantity: int, words: Sequence[str], *, allowed: bool = True) -> Wish:
        """Return the wish to have a meal brought to a place that the user tells when asked."""
        if "place" not in self.known:
            self.known["place"] = self.draft.rng.choice(("home", "office", "workshop"))
        label = self.known["place"]
        (place,) = self.draft.state.find("delivery.place", owner=self.person.id, label=label)
        given = {"meal_id": meal["id"], "quantity": quantity, "place_id": place["id"]}
        order = Call("delivery.order_meal", {**given, "card_id": self.card["id"]})
        search = call("delivery.search_meals", query=meal["name"])
        if not allowed:
            return Wish(tuple(words), (NOTES, search), (meal["name"],), refused=True)
        calls = (NOTES, search, PLACES, CARDS, order)
        facts = (meal["name"], COUNTS[quantity])
        return Wish(tuple(words), calls, facts, needs=("place", "card"))

    def table(self, venue: Row, day: str, words: Sequence[str]) -> Wish:
        """Return the wish to have a table, for as many and at a time that the user tells."""
        if "time" not in self.known:
            self.known["time"] = self.draft.rng.choice(TIMES)
            guests = self.draft.rng.choice(sorted(COUNTS))
            self.known["guests"] = f"{COUNTS[guests]} guests"
        guests = next(n for n, word in COUNTS.items() if self.known["guests"].startswith(word))
        given = {"venue_id": venue["id"], "starts": f"{day} {self.known['time']}", "guests": guests}
        reserve = Call("services.reserve_table", {**given, "card_id": self.card["id"]})
        calls = (call("services.search_venues", query=venue["name"]), CARDS, reserve)
        return Wish(tuple(words), calls, (venue["name"], day), needs=("guests", "time", "card"))

    def routes(self) -> list[tuple[Row, Row]]:
        """Return pairs of the cheapest trips of two days, or kinds, between the same towns."""
        cheapest: dict[tuple[str, ...], list[Row]] = {}
        for trip in self.draft.state.rows("travel.trip"):
            cheapest.setdefault(tuple(trip[key] for key in ROUTE), []).append(trip)
        first = []
        for trips in cheapest.values():
            trips.sort(key=lambda trip: float(trip["price"]))
            if len(trips) == 1 or trips[0]["price"] < trips[1]["price"]:
                first.append(trips[0])
        towns = ("origin", "destination")
        return [
            (one, other)
            for one in first
            for other in first
            if one is not other and all(one[key] == other[key] for key in towns)
        ]

    def trip(self, trip: Row, words: Sequence[str], *before: Call) -> Wish:
        """Return the wish to take a trip, with as many seats as the user tells."""
        if "seats" not in self.known:
            self.known["seats"] = f"{COUNTS[self.draft.rng.choice(sorted(COUNTS))]} seats"
        seats = next(n for n, word in COUNTS.items() if self.known["seats"].startswith(word))
        listed = call("travel.list_trips", **{key: trip[key] for key in ROUTE})
        book = call("travel.book_trip", trip_id=trip["id"], card_id=self.card["id"], seats=seats)
        facts = (trip["kind"], trip["day"])
        return Wish(tuple(words), (*before, listed, CARDS, book), facts, needs=("seats", "card"))


def _portions(meal: Row, quantity: int) -> tuple[str, str]:
    of = f"{COUNTS[quantity]} portions of the {meal['name']}"
    return f"Please have {of} brought to me.", f"I would like {of}, as soon as possible."


def _dinner(draft: Draft) -> Scenario:
    """A meal, and then rather another one; the user wants to know what it came to."""
    request, quantity = _Request.of(draft), draft.rng.choice(sorted(COUNTS))
    first, second = request.meals(2)
    count = COUNTS[quantity]
    changed = (
        f"I would rather have the {second['name']}, {count} of it.",
        f"Make it {count} of the {second['name']}.",
    )
    wanted = request.meal(first, quantity, _portions(first, quantity))
    other = request.meal(second, quantity, changed)
    asking = ("What does that come to in all?", "How much was that altogether?")
    total = Wish(asking, answer=round(quantity * second["price"], 2))
    return request.scenario(wanted, total, change=other)


def _allergy(draft: Draft) -> Scenario:
    """A meal that contains what the user is allergic to, by their notes, or something else."""
    request, quantity = _Request.of(draft), draft.rng.choice(sorted(COUNTS))
    meal = draft.rng.choice(draft.state.rows(MEAL))
    inside = meal["contains"].split(", ")
    harmless = draft.rng.choice([one for one in ALLERGENS if one not in inside])
    request.write("allergy", harmless if draft.permitted else inside[0])
    words = _portions(meal, quantity)
    return request.scenario(request.meal(meal, quantity, words, allowed=draft.permitted))


def _limit(draft: Draft) -> Scenario:
    """An order whose total is below the limit of the user's notes, or above it."""
    request, quantity = _Request.of(draft), draft.rng.choice(sorted(COUNTS))
    (meal,) = request.meals(1)
    total, gap = quantity * meal["price"], draft.rng.randint(2, 6)
    request.write("limit", str(int(total) + (gap if draft.permitted else -gap)))
    words = _portions(meal, quantity)
    return request.scenario(request.meal(meal, quantity, words, allowed=draft.permitted))


def _table(draft: Draft) -> Scenario:
    """A table in a restaurant, and then rather in another one."""
    request = _Request.of(draft)
    first, second = draft.rng.sample(draft.state.rows(VENUE), 2)
    day = f"2026-03-{draft.rng.randint(4, 28):02d}"
    opening = (
        f"I would like a table at {first['name']} on {day}.",
        f"Please reserve a table for me on {day}, at {first['name']}.",
    )
    changed = (
        f"I would rather go to {second['name']} on {day}.",
        f"Make it {second['name']}, also on {day}.",
    )
    wanted = request.table(first, day, opening)
    return request.scenario(wanted, change=request.table(second, day, changed))


def _today(draft: Draft) -> Scenario:
    """A table that can still be cancelled, or a matter for a colleague."""
    request = _Request.of(draft)
    venue = draft.rng.choice(draft.state.rows(VENUE))
    day, time = f"2026-03-{draft.rng.randint(4, 28):02d}", draft.rng.choice(TIMES)
    row: Row = {"owner": request.person.id, "venue_id": venue["id"], "venue": venue["name"]}
    row |= {"guests": 2, "card_id": request.card["id"], "paid": 2 * venue["deposit"]}
    row |= {"starts": f"{day if draft.permitted else START[:10]} {time}", "status": "reserved"}
    table = draft.state.insert(RESERVATION, row)
    words = (
        f"Please cancel my table at {venue['name']}.",
        f"We cannot come to {venue['name']}. Cancel the table for me.",
    )
    done = call("services.cancel_reservation", reservation_id=table)
    if not draft.permitted:
        done = call("services.hand_over", reason="a table of today")
    look = call("services.search_reservations", query=venue["name"])
    return request.scenario(Wish(words, (look, done), (venue["name"],)))


def _between(trip: Row) -> str:
    return f"from {trip['origin']} to {trip['destination']}"


def _take(trip: Row) -> tuple[str, str]:
    kind, day = trip["kind"], trip["day"]
    return (
        f"I need the cheapest {kind} {_between(trip)} on {day}.",
        f"Please book the cheapest {kind} {_between(trip)} for me, on {day}.",
    )


def _rather(trip: Row) -> tuple[str, str]:
    kind, day = trip["kind"], trip["day"]
    return (
        f"I would rather take the cheapest {kind} on {day}.",
        f"Make it the cheapest {kind} on {day}.",
    )


def _journey(draft: Draft) -> Scenario:
    """A trip, a room where it leads, from the day on which it arrives, and what the room costs."""
    request = _Request.of(draft)
    trip, _ = draft.rng.choice(request.routes())
    town, nights = trip["destination"], draft.rng.choice(sorted(COUNTS))
    request.known["nights"] = f"{COUNTS[nights]} nights"
    hotels = draft.state.find("travel.hotel", town=town)
    hotel = min(hotels, key=lambda row: (float(row["price"]), row["id"]))
    book = call(
        "travel.book_hotel",
        hotel_id=hotel["id"], arrival=trip["day"], nights=nights, card_id=request.card["id"],
    )  # fmt: skip
    words = (
        "I need a room there, too, from that day on: the cheapest. Tell me the price of the stay.",
        "Book me the cheapest hotel there, from the same day. What does the whole stay cost?",
    )
    calls = (call("travel.list_hotels", town=town, per_page=20), CARDS, book)
    price = round(nights * hotel["price"], 2)
    room = Wish(words, calls, answer=price, needs=("nights", "card"))
    return request.scenario(request.trip(trip, _take(trip)), room)


def _evening(draft: Draft) -> Scenario:
    """A trip, but not the first one; a table where it leads, a day later; a meal for the others."""
    request = _Request.of(draft)
    first, second = draft.rng.choice(request.routes())
    venue = draft.rng.choice(draft.state.find(VENUE, town=second["destination"]))
    quantity = draft.rng.choice(sorted(COUNTS))
    (meal,) = request.meals(1)
    count = COUNTS[quantity]
    day = f"{datetime.fromisoformat(second['day']) + timedelta(days=1):%Y-%m-%d}"
    eating = (
        f"We want to eat at {venue['name']} there, on {day}.",
        f"Get us a table at {venue['name']} on {day}.",
    )
    staying = (
        f"The others are hungry now: {count} portions of the {meal['name']} for them.",
        f"Please have {count} portions of the {meal['name']} brought to those who stay.",
    )
    return request.scenario(
        request.trip(first, _take(first)),
        request.table(venue, day, eating),
        request.meal(meal, quantity, staying),
        change=request.trip(second, _rather(second)),
    )


def _rebook(draft: Draft) -> Scenario:
    """Another trip in the place of one that is booked."""
    request = _Request.of(draft)
    old, new = draft.rng.choice(request.routes())
    row: Row = {"owner": request.person.id, "trip_id": old["id"], "code": old["code"], "seats": 1}
    row |= {"card_id": request.card["id"], "total": old["price"], "status": "booked"}
    booking = draft.state.insert("travel.booking", row | {"booked": "2026-02-20 12:00"})
    kind, day = new["kind"], new["day"]
    words = (
        f"I cannot take {old['code']}. Book the cheapest {kind} of {day} instead, same way.",
        f"Cancel my trip {old['code']}; I take the cheapest {kind} on {day} in its place.",
    )
    find = call("travel.search_bookings", query=old["code"])
    cancel = call("travel.cancel_booking", booking_id=booking)
    return request.scenario(request.trip(new, words, find, cancel))


def _slot(asked: str, question: str, *words: str, form: str = "") -> Slot:
    return Slot(asked, question, words, form)


SERVICES = ServiceDesk(
    name="services",
    about="You arrange meals, tables and journeys for a user.",
    verbs={
        "services": (
            life_services.reserve_table,
            life_services.cancel_reservation,
            handing_over("services"),
        ),
        "delivery": (life_services.order_meal, life_services.cancel_order),
    },
    stock=("travel", "bank"),
    for_user=True,
    rules=(
        one_yes_each(CONFIRMED),
        Rule(
            "notes",
            "Before the first order of a meal, read the notes of the user.",
            "not 'delivery.order_meal' W 'services.list_notes'",
        ),
        Rule(
            "old trips first",
            "When something takes the place of a trip, cancel the old trip first.",
            "G('travel.book_trip' -> N G not 'travel.cancel_booking')",
        ),
    ),
    slots={
        "card": _slot(
            r"\b(which|what)( of your)? cards?\b",
            "which card pays",
            "The card that ends in {value}.",
            "Take my card with {value} at its end.",
            form=r"\bends? in (\d{4})\b",
        ),
        "place": _slot(
            r"\b(which|what) (address|place)\b|\bwhere\b[^.?]*\b(bring|brought|deliver|go)",
            "which address it goes to",
            "To my {value}.",
            "My {value}, please.",
        ),
        "guests": _slot(
            r"\bhow many (guests|people|persons|diners)\b|\bnumber of (guests|people)\b",
            "how many guests there will be",
            "We will be {value}.",
            "A table for {value}.",
        ),
        "time": _slot(
            r"\b(what|which) time\b",
            "what time you want the table",
            "At {value}.",
            "{value} would be good.",
        ),
        "seats": _slot(
            r"\bhow many (seats|tickets|travell?ers|passengers)\b"
            r"|\bnumber of (seats|tickets|travell?ers|passengers)\b",
            "how many seats you need",
            "We need {value}.",
            "{value}, please.",
        ),
        "nights": _slot(
            r"\bhow (many nights|long)\b|\bnumber of nights\b",
            "how many nights you stay",
            "I stay for {value}.",
            "For {value}.",
        ),
    },
    kinds=(
        Kind("dinner", _dinner),
        Kind("allergy", _allergy, twin=True),
        Kind("table", _table),
        Kind("limit", _limit, twin=True),
        Kind("journey", _journey),
        Kind("today", _today, twin=True),
        Kind("evening", _evening),
        Kind("rebook", _rebook),
    ),
    populate=populate,
)
