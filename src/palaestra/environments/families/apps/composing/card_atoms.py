"""Goals that a card pays for: in the shop, and on journeys."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    mine,
    pick,
    swapped,
)
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import TIME, World

ANY = 0.5  # of the goals leave it open which card pays


class ByCard(Atom):
    """A goal that a card pays for: one that is named, or any."""

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        cards, slots = self._digits(world), self.draw_purchase(world, rng)
        if not cards or slots is None:
            return None
        digits, open_ = rng.choice(cards), rng.random() < ANY
        by = "with any of my cards" if open_ else f"with my card that ends in {digits}"
        return {**slots, "digits": digits, "open": open_, "by": by}

    @abstractmethod
    def draw_purchase(self, world: World, rng: random.Random) -> Slots | None:
        """Draw all slots but the card."""

    @abstractmethod
    def purchases(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        """Return near misses in which something else is bought."""

    def card(self, slots: Slots) -> Steps:
        """Yield a look at the cards; return the id of the one that pays."""
        found = yield call("bank.list_cards")
        return pick(found["cards"], digits=slots["digits"])["id"]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        cards = [] if slots["open"] else self._digits(world)
        return [*self.purchases(slots, world, rng), *swapped(slots, digits=cards)]

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        return swapped(slots, digits=self._digits(world)) if slots["open"] else ()

    def _digits(self, world: World) -> list[str]:
        """Return the last digits of the cards that are not frozen."""
        return [row["digits"] for row in mine(world, "bank.card") if row["status"] == "active"]


class Order(ByCard):
    name = "order a product"
    apps = frozenset({"shop", "bank"})
    words = (
        "Order {quantity} × '{product}' in the shop and pay {by}.",
        "Buy the product '{product}' in the shop, {quantity} of it. Pay {by}.",
    )

    def draw_purchase(self, world: World, rng: random.Random) -> Slots | None:
        product = rng.choice(world.state.rows("shop.product"))
        return {"product": product["name"], "quantity": rng.randint(1, 3)}

    def steps(self, slots: Slots) -> Steps:
        product = yield from first("shop.search_products", query=slots["product"])
        card = yield from self.card(slots)
        given = {"product_id": product["id"], "quantity": slots["quantity"]}
        yield call("shop.create_cart_item", **given)
        yield call("shop.checkout", card_id=card)

    def purchases(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        products = [row["name"] for row in rng.sample(world.state.rows("shop.product"), 3)]
        return swapped(slots, product=products, quantity=(1, 2, 3))


class OrderLine(Atom):
    """A goal about a product that was ordered."""

    apps = frozenset({"shop"})
    status: str  # that the order must have

    def products(self, world: World) -> list[str]:
        """Return the products of such orders, which a search tells apart."""
        orders = {row["id"] for row in mine(world, "shop.order") if row["status"] == self.status}
        gone = {row["line_id"] for row in mine(world, "shop.refund")}
        lines = findable(world, "shop.line", "product")
        return [
            line["product"]
            for line in lines
            if line["order_id"] in orders and line["id"] not in gone
        ]


class CancelOrder(OrderLine):
    name = "cancel an order"
    status = "placed"
    words = (
        "Cancel my order of the product '{product}'.",
        "I changed my mind about '{product}'. Cancel that order in the shop.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        products = self.products(world)
        return {"product": rng.choice(products)} if products else None

    def steps(self, slots: Slots) -> Steps:
        line = yield from first("shop.search_lines", query=slots["product"])
        yield call("shop.cancel_order", order_id=line["order_id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        rows = mine(world, "shop.line")
        (order,) = {r["order_id"] for r in rows if r["product"] == slots["product"]}
        others = [r["product"] for r in rows if r["order_id"] != order]
        return swapped(slots, product=others)


class ReturnProduct(OrderLine):
    name = "return an order"
    status = "delivered"
    words = (
        "Return the product '{product}' to the shop; the reason is: {reason}.",
        "Send '{product}' back to the shop (reason: {reason}).",
    )
    REASONS = ("damaged", "wrong size", "late", "not needed")

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        products = self.products(world)
        if not products:
            return None
        return {"product": rng.choice(products), "reason": rng.choice(self.REASONS)}

    def steps(self, slots: Slots) -> Steps:
        line = yield from first("shop.search_lines", query=slots["product"])
        yield call("shop.return_product", line_id=line["id"], reason=slots["reason"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, product=self.products(world), reason=self.REASONS)


class BookTrip(ByCard):
    name = "book the cheapest trip"
    apps = frozenset({"travel", "bank"})
    words = (
        "Book {seats} seats on the cheapest {kind} from {origin} to {destination} on {day}, paid "
        "{by}.",
        "We are {seats} and need the cheapest {kind} from {origin} to {destination} on {day}. "
        "Book it {by}.",
    )
    ROUTE = ("kind", "origin", "destination", "day")

    def _others(self, world: World, slots: Slots) -> list[Row]:
        """Return the trips of a route on a day, the cheapest first."""
        found = world.state.find("travel.trip", **{key: slots[key] for key in self.ROUTE})
        return sorted(found, key=lambda trip: float(trip["price"]))

    def draw_purchase(self, world: World, rng: random.Random) -> Slots | None:
        one = rng.choice(world.state.rows("travel.trip"))
        slots = {key: one[key] for key in self.ROUTE}
        trips = self._others(world, slots)
        if len(trips) < 2 or trips[0]["price"] == trips[1]["price"]:
            return None
        return {**slots, "seats": rng.randint(2, 4), "rank": 0}

    def steps(self, slots: Slots) -> Steps:
        found = yield call("travel.list_trips", **{key: slots[key] for key in self.ROUTE})
        trips = sorted(found["trips"], key=lambda trip: float(trip["price"]))
        card = yield from self.card(slots)
        given = {"trip_id": trips[slots["rank"]]["id"], "card_id": card, "seats": slots["seats"]}
        yield call("travel.book_trip", **given)

    def purchases(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        days = sorted({row["day"] for row in world.state.rows("travel.trip")})
        ranks = range(len(self._others(world, slots)))
        return swapped(slots, rank=ranks, seats=(1, 2, 3), day=days, kind=("train", "flight"))


class CancelBooking(Atom):
    name = "cancel a booking"
    apps = frozenset({"travel"})
    words = (
        "Cancel my booking of the trip {code}.",
        "I cannot take {code}. Cancel the seats that I booked there.",
    )

    def _codes(self, world: World) -> list[str]:
        trips = {row["id"]: row for row in world.state.rows("travel.trip")}
        return [
            row["code"]
            for row in findable(world, "travel.booking", "code")
            if row["status"] == "booked" and trips[row["trip_id"]]["departs"] > world.now
        ]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        codes = self._codes(world)
        return {"code": rng.choice(codes)} if codes else None

    def steps(self, slots: Slots) -> Steps:
        booking = yield from first("travel.search_bookings", query=slots["code"])
        yield call("travel.cancel_booking", booking_id=booking["id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, code=self._codes(world))


class BookHotel(ByCard):
    name = "book a hotel"
    apps = frozenset({"travel", "bank"})
    words = (
        "Book a room in the hotel '{hotel}' for {nights} nights from {arrival} on, paid {by}.",
        "I will stay {nights} nights in '{hotel}' and arrive on {arrival}. Book it {by}.",
    )

    def draw_purchase(self, world: World, rng: random.Random) -> Slots | None:
        hotel = rng.choice(world.state.rows("travel.hotel"))["name"]
        day = datetime.strptime(world.start, TIME) + timedelta(days=rng.randint(1, 30))
        return {"hotel": hotel, "nights": rng.randint(2, 4), "arrival": f"{day:%Y-%m-%d}"}

    def steps(self, slots: Slots) -> Steps:
        hotel = yield from first("travel.search_hotels", query=slots["hotel"])
        card = yield from self.card(slots)
        given: dict[str, Any] = {key: slots[key] for key in ("arrival", "nights")}
        yield call("travel.book_hotel", hotel_id=hotel["id"], **given, card_id=card)

    def purchases(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        hotels = [row["name"] for row in rng.sample(world.state.rows("travel.hotel"), 3)]
        day = datetime.fromisoformat(slots["arrival"]) + timedelta(days=1)
        return swapped(slots, hotel=hotels, nights=(2, 3), arrival=[f"{day:%Y-%m-%d}"])


class Freeze(Atom):
    name = "freeze a card"
    apps = frozenset({"bank"})
    words = (
        "Freeze my card that ends in {digits}.",
        "I lost the card with the last digits {digits}. Have it frozen.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        cards = [row for row in mine(world, "bank.card") if row["status"] == "active"]
        return {"digits": rng.choice(cards)["digits"]} if cards else None

    def steps(self, slots: Slots) -> Steps:
        found = yield call("bank.list_cards")
        card = pick(found["cards"], digits=slots["digits"])
        yield call("bank.update_card", card_id=card["id"], status="frozen")

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, digits=[row["digits"] for row in mine(world, "bank.card")])


KINDS: tuple[type[Atom], ...] = (
    Order,
    CancelOrder,
    ReturnProduct,
    BookTrip,
    CancelBooking,
    BookHotel,
    Freeze,
)
