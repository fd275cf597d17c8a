"""What people spent: among each other, in the shop, and on journeys.

All was paid by cards of the bank, whose accounts have so much less: with these apps, balance +
sent - received + spent is a multiple of 100, as balance + sent - received is without them.
"""

from __future__ import annotations

from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.names import NOTES, TOWNS
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row

CATEGORIES = ("kitchen", "garden", "office", "sport", "books")
PRODUCTS, HOTELS = 40, 10
ORDERS = ("delivered", "delivered", "cancelled", "delivered", "placed", "placed")
DAYS = (3, 5, 8, 12, 17)  # after the start, on which trips leave
PRICES = {"train": (20, 90), "flight": (70, 130)}  # of a seat, in halves


def payments(scene: Scene) -> None:
    """Write wallets, requests in both directions, and transfers."""
    rng, state = scene.rng, scene.state
    row: Row
    for person in scene.people:
        row = {"owner": person.id, "balance": float(rng.randint(300, 600))}
        state.insert("payments.wallet", row)
    for person in scene.active:
        pairs = []
        for other in scene.known(person):
            notes = rng.sample(NOTES[person.circle[other.id]], 2)
            pairs += [(person, other, notes[0]), (other, person, notes[1])]
        chosen = rng.sample(pairs, min(len(pairs), 12))
        for (asker, payer, note), made in zip(chosen, scene.past(len(chosen), 30), strict=True):
            status = rng.choice(("open", "open", "paid", "declined"))
            row = {"asker": asker.email, "payer": payer.email, "note": note}
            row |= {"amount": rng.randint(6, 80) / 2}
            of_asker = {"owner": asker.id, "status": status, "made": made}
            state.insert("payments.request", row | of_asker)
            if status == "paid":
                row = {"owner": payer.id, "payer": payer.email, "payee": asker.email} | {
                    key: row[key] for key in ("amount", "note")
                }
                state.insert("payments.transfer", row | {"paid": made})


def shop(scene: Scene) -> None:
    """Write products, and each active person's orders, a refund and reviews."""
    rng, state = scene.rng, scene.state
    row: Row
    for thing in scene.things(PRODUCTS):
        row = {"name": thing.capitalize(), "category": rng.choice(CATEGORIES)}
        row |= {"price": rng.randint(8, 60) / 2, "stock": rng.randint(5, 40)}
        state.insert("shop.product", row)
    products = state.rows("shop.product")
    for person in scene.active:
        bought = iter(rng.sample(products, 3 * len(ORDERS)))
        lines: list[Row] = []
        for status, placed in zip(ORDERS, scene.past(len(ORDERS), 60), strict=True):
            chosen = [(next(bought), rng.randint(1, 2)) for _ in range(rng.randint(1, 3))]
            total = sum(product["price"] * quantity for product, quantity in chosen)
            card = _card(scene, person)
            row = {"owner": person.id, "number": f"S-{1001 + state.count('shop.order')}"}
            row |= {"card_id": card["id"], "total": total, "status": status, "placed": placed}
            order = state.insert("shop.order", row)
            if status != "cancelled":
                _charge(scene, card, total)
            for product, quantity in chosen:
                row = {"owner": person.id, "order_id": order, "product_id": product["id"]}
                row |= {"product": product["name"], "quantity": quantity}
                line = state.insert("shop.line", row | {"price": product["price"]})
                if status == "delivered":
                    lines.append({"id": line, "card": card, **row, "price": product["price"]})
        back, *rated = rng.sample(lines, min(len(lines), 3))
        amount = back["price"] * back["quantity"]
        row = {"owner": person.id, "line_id": back["id"], "reason": "damaged", "amount": amount}
        state.insert("shop.refund", row | {"made": scene.past(1, 3)[0]})
        _charge(scene, back["card"], -amount)
        for one in rated:
            row = {"owner": person.id, "product_id": one["product_id"], "author": person.email}
            text = "It does what it should."
            state.insert("shop.review", row | {"stars": rng.randint(2, 5), "text": text})


def travel(scene: Scene) -> None:
    """Write trips from the first person's town and back, hotels, and who booked what."""
    rng, state = scene.rng, scene.state
    row: Row
    home = scene.people[0].address.rpartition(", ")[2]
    towns = rng.sample([town for town in TOWNS if town != home], 3)
    numbers = iter(rng.sample(range(100, 1000), 3 * 2 * len(DAYS) * 3))
    for town in towns:
        for after in DAYS:
            for kind, prices in PRICES.items():
                origin, destination = (home, town) if rng.random() < 0.7 else (town, home)
                for price in rng.sample(range(*prices), rng.randint(2, 3)):
                    day = scene.day(after)
                    departs = f"{day} {rng.randint(6, 20):02d}:{rng.choice((5, 20, 40)):02d}"
                    row = {"kind": kind, "code": f"{kind[:2].upper()} {next(numbers)}"}
                    row |= {"origin": origin, "destination": destination, "day": day}
                    row |= {"departs": departs, "price": price / 2, "seats": rng.randint(9, 60)}
                    state.insert("travel.trip", row)
    for thing in scene.things(HOTELS):
        row = {"name": f"Hotel {thing.title()}", "town": rng.choice(TOWNS)}
        row |= {"stars": rng.randint(1, 5), "price": rng.randint(60, 130) / 2}
        state.insert("travel.hotel", row)
    trips, hotels = state.rows("travel.trip"), state.rows("travel.hotel")
    for person in scene.active:
        for trip, booked in zip(rng.sample(trips, 5), scene.past(5, 20), strict=True):
            card, seats = _card(scene, person), rng.randint(1, 2)
            row = {"owner": person.id, "trip_id": trip["id"], "code": trip["code"]}
            row |= {"seats": seats, "total": seats * trip["price"], "booked": booked}
            status = _book(scene, card, row["total"])
            state.insert("travel.booking", row | {"card_id": card["id"], "status": status})
        for hotel in rng.sample(hotels, 2):
            card, nights = _card(scene, person), rng.randint(1, 3)
            row = {"owner": person.id, "hotel_id": hotel["id"], "hotel": hotel["name"]}
            row |= {"arrival": scene.day(rng.randint(5, 40)), "nights": nights}
            row |= {"total": nights * hotel["price"], "card_id": card["id"]}
            state.insert("travel.stay", row | {"status": _book(scene, card, row["total"])})
        for other in (person, *scene.known(person, "family")):
            row = {"owner": person.id, "name": other.name, "seat": "any"}
            row["passport"] = f"P{rng.randint(1_000_000, 9_999_999)}"
            state.insert("travel.traveller", row)


def _card(scene: Scene, person: Person) -> Row:
    return scene.rng.choice(scene.state.find("bank.card", owner=person.id))


def _book(scene: Scene, card: Row, total: float) -> str:
    """Return whether it is still booked; a card paid for what is."""
    if scene.rng.random() < 0.25:
        return "cancelled"
    _charge(scene, card, total)
    return "booked"


def _charge(scene: Scene, card: Row, amount: float) -> None:
    account = scene.state.get("bank.account", card["account_id"])
    assert account is not None
    balance = round(account["balance"] - amount, 2)
    scene.state.update("bank.account", account["id"], {"balance": balance})
