"""The shop: django-oscar, with its dashboard. The person runs the shop, and buys in it, too."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from palaestra.environments.families.apps.people import Person, draw_people
from palaestra.environments.families.real_sites import request_clock
from palaestra.environments.families.real_sites.application import BEGIN
from palaestra.environments.families.real_sites.django_server import DjangoApplication
from palaestra.environments.families.real_sites.django_users import made_users
from palaestra.environments.families.real_sites.pictures import COLOURS, SHAPES, name_of

PEOPLE = {"small": 8, "large": 40}
PRODUCTS = {"small": 24, "large": 240}
ORDERS = {"small": 12, "large": 120}
CATEGORIES = {
    "Kitchen": ("Mug", "Teapot", "Bowl", "Kettle"),
    "Furniture": ("Chair", "Table", "Shelf", "Stool"),
    "Light": ("Lamp", "Lantern", "Candle", "Torch"),
    "Garden": ("Spade", "Bench", "Planter", "Hose"),
}
MAKES = (
    "Alder", "Birch", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Harbour", "Iris", "Juniper",
    "Lagoon", "Maple", "Nordic", "Oasis", "Prairie", "Ridge",
)  # fmt: skip
MATERIALS = ("steel", "oak", "glass", "clay", "bamboo", "copper")
PRAISE = ("Works well", "Looks better than the picture", "A fine gift", "Solid and simple")
BLAME = ("Broke after a week", "Smaller than I thought", "Arrived late", "Not worth the price")
STATES = ("Pending", "Being processed", "Complete", "Cancelled")


class Shop(DjangoApplication):
    """django-oscar: products, baskets, orders, reviews, wish lists, and a dashboard for staff."""

    name = "shop"
    middleware = ("oscar.apps.basket.middleware.BasketMiddleware",)
    unjudged: ClassVar = {
        **DjangoApplication.unjudged,
        "address_useraddress": ("hash", "search_text", "num_orders_as_shipping_address"),
        "analytics_productrecord": (),
        "analytics_userproductview": (),
        "analytics_userrecord": (),
        "analytics_usersearch": (),
        "catalogue_product": ("date_updated",),
        "communication_email": (),
        "partner_stockrecord": ("date_updated",),
    }

    def urls(self) -> list[Any]:
        from django.apps import apps
        from django.urls import include, path

        return [path("", include(apps.get_app_config("oscar").urls[0]))]

    def populate(self, rng: random.Random) -> int:
        people = draw_people(rng, PEOPLE[self.variant.size])
        users = made_users(people)
        products = _products(rng, PRODUCTS[self.variant.size])
        _reviews(rng, users[1:], products)
        _orders(rng, people, users, products, ORDERS[self.variant.size])
        _belongings(users[0], people[0])
        return int(users[0].pk)


def _products(rng: random.Random, count: int) -> list[Any]:
    from oscar.core.loading import get_model

    models = {
        name: get_model(app, name)
        for app, name in (
            ("catalogue", "ProductClass"), ("catalogue", "Category"), ("catalogue", "Product"),
            ("catalogue", "ProductCategory"), ("catalogue", "ProductImage"),
            ("catalogue", "ProductAttribute"), ("catalogue", "ProductAttributeValue"),
            ("partner", "Partner"), ("partner", "StockRecord"),
        )
    }  # fmt: skip
    goods = models["ProductClass"].objects.create(name="Goods", slug="goods")
    attributes = [
        models["ProductAttribute"].objects.create(
            product_class=goods, name=name, code=name.lower(), type=type
        )
        for name, type in (("Material", "text"), ("Weight in grams", "integer"))
    ]
    attributes[1].code = "weight"
    attributes[1].save()
    partner = models["Partner"].objects.create(name="Corner Shop", code="corner")
    categories = {
        name: models["Category"].add_root(name=name, slug=name.lower(), depth=1)
        for name in CATEGORIES
    }
    kinds = [(category, kind) for category, all in CATEGORIES.items() for kind in all]
    names = [
        (category, kind, make)
        for category, kind in kinds
        for make in rng.sample(MAKES, -(-count // len(kinds)))
    ]
    rng.shuffle(names)
    made = []
    for number, (category, kind, make) in enumerate(names[:count], 1):
        material, weight = rng.choice(MATERIALS), 50 * rng.randint(2, 60)
        product = models["Product"].objects.create(
            product_class=goods, title=f"{make} {kind}", slug=f"{make}-{kind}".lower(),
            upc=f"CS{number:04d}", meta_description="",
            description=f"<p>A {kind.lower()} of {material} by {make}.</p>",
        )  # fmt: skip
        models["ProductCategory"].objects.create(product=product, category=categories[category])
        models["ProductImage"].objects.create(
            product=product, original=name_of(rng.choice(SHAPES), rng.choice(list(COLOURS)))
        )
        models["StockRecord"].objects.create(
            product=product, partner=partner, partner_sku=f"S{number:04d}", price_currency="EUR",
            price=Decimal(rng.randint(300, 9900)) / 100, num_in_stock=rng.randint(2, 40),
            low_stock_threshold=rng.choice((3, 5, 8)),
        )  # fmt: skip
        models["ProductAttributeValue"].objects.bulk_create(
            [
                models["ProductAttributeValue"](
                    product=product, attribute=attributes[0], value_text=material
                ),
                models["ProductAttributeValue"](
                    product=product, attribute=attributes[1], value_integer=weight
                ),
            ]
        )
        made.append(product)
    return made


def _reviews(rng: random.Random, users: list[Any], products: list[Any]) -> None:
    from oscar.core.loading import get_model

    model, days = get_model("reviews", "ProductReview"), iter(range(1, 1000))
    for product in rng.sample(products, len(products) * 2 // 3):
        for user in rng.sample(users, rng.randint(1, 3)):
            score = rng.randint(1, 5)
            title = rng.choice(PRAISE if score > 3 else BLAME)
            with request_clock.at(BEGIN - timedelta(days=next(days)), rng):
                model.objects.create(
                    product=product, score=score, title=title, user=user, status=model.APPROVED,
                    body=f"{title}. I would {'' if score > 3 else 'not '}buy it again.",
                )  # fmt: skip
        product.update_rating()


def _orders(
    rng: random.Random, people: list[Person], users: list[Any], products: list[Any], count: int
) -> None:
    from oscar.core.loading import get_model

    order_model, line_model = get_model("order", "Order"), get_model("order", "Line")
    address_model, country = get_model("order", "ShippingAddress"), _country()
    for number in range(count):
        # The person has some orders of their own.
        chosen = 0 if number % 4 == 0 else rng.randrange(1, len(users))
        person, status = people[chosen], rng.choice(STATES)
        bought = [(one, rng.randint(1, 3)) for one in rng.sample(products, rng.randint(1, 3))]
        prices = [one.stockrecords.get().price for one, _ in bought]
        total = sum(
            (price * count for price, (_, count) in zip(prices, bought, strict=True)), Decimal()
        )
        order = order_model.objects.create(
            number=f"{100101 + number}", user=users[chosen], currency="EUR", status=status,
            total_incl_tax=total, total_excl_tax=total, shipping_method="Free shipping",
            shipping_code="free-shipping",
            date_placed=BEGIN - timedelta(days=3 * (count - number)),
            shipping_address=address_model.objects.create(**_address(person), country=country),
        )  # fmt: skip
        for price, (product, count) in zip(prices, bought, strict=True):
            stock = product.stockrecords.get()
            line_model.objects.create(
                order=order, partner=stock.partner, partner_name=stock.partner.name,
                partner_sku=stock.partner_sku, stockrecord=stock, product=product,
                title=product.title, upc=product.upc, quantity=count, status=status,
                line_price_incl_tax=price * count, line_price_excl_tax=price * count,
                line_price_before_discounts_incl_tax=price * count,
                line_price_before_discounts_excl_tax=price * count,
                unit_price_incl_tax=price, unit_price_excl_tax=price, num_allocated=0,
            )  # fmt: skip


def _belongings(user: Any, person: Person) -> None:
    """Give the person a basket, an address and a wish list, so that none is made on the way."""
    from oscar.core.loading import get_model

    get_model("basket", "Basket").objects.create(owner=user)
    get_model("wishlists", "WishList").objects.create(owner=user, name="Gifts")
    get_model("address", "UserAddress").objects.create(
        user=user, country=_country(), is_default_for_shipping=True, **_address(person)
    )


def _country() -> Any:
    from oscar.core.loading import get_model

    found, _ = get_model("address", "Country").objects.get_or_create(
        iso_3166_1_a2="GB", printable_name="United Kingdom", name="United Kingdom",
        is_shipping_country=True,
    )  # fmt: skip
    return found


def _address(person: Person) -> dict[str, str]:
    street, _, town = person.address.partition(", ")
    return {
        "first_name": person.first, "last_name": person.surname, "line1": street, "line4": town,
        "postcode": "AB1 2CD",
    }  # fmt: skip
