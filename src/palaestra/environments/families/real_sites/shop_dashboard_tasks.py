"""Tasks in the shop for who runs it, most of them on its dashboard."""

from __future__ import annotations

import random

from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.shop_tasks import (
    NEW_NAMES,
    PRODUCT,
    STOCK,
    page_of,
    products,
    stock_of,
)
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    inserted,
    template,
    updated,
)

ADDRESS = "http://shop.example"


def edit_page_of(product: Row) -> tuple[str, ...]:
    return *page_of(product["title"]), "click 'Edit this product'"


@template("shop", "easy", "find")
def customer_of_order(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who made an order."""
    order = rng.choice(world.rows("shop.order_order", "user_id > 1"))
    user = world.row("shop.auth_user", order["user_id"])
    me = world.row("shop.auth_user", 1)
    return SiteTask(
        f"You run this shop. Which customer made the order {order['number']}? Full name.",
        deeds=(Deed(("click 'Dashboard link'", f"go '{ADDRESS}/dashboard/orders/'")),),
        answer=f"{user['first_name']} {user['last_name']}",
        wrong=(WrongEnd(answer=f"{me['first_name']} {me['last_name']}"),),
    )


@template("shop", "medium", "compare")
def orders_of_status(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """List the orders of a status."""
    orders = world.rows("shop.order_order")
    status = rng.choice(sorted({one["status"] for one in orders}))
    right = frozenset(one["number"] for one in orders if one["status"] == status)
    more = next(one["number"] for one in orders if one["status"] != status)
    way = ("click 'Dashboard link'", "click 'Fulfilment button'", "click 'Orders link'")
    return SiteTask(
        f"You run this shop. Which orders have the status '{status}'? List their numbers.",
        deeds=(Deed(way),),
        answer=right,
        wrong=(WrongEnd(answer=", ".join([*right, more])), WrongEnd(answer=more)),
    )


@template("shop", "medium", "change")
def change_price(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Set the price of a product."""
    product, other = products(world, rng, 2)
    price = rng.randint(100, 200) + 0.5

    def way(one: Row) -> tuple[str, ...]:
        stock = stock_of(world, one)
        return (
            *edit_page_of(one),
            "click 'Stock and pricing'",
            f"type '{stock['price']:.2f} field' '{price}' clear",
            "click 'Save button'",
        )

    wanted = updated(STOCK, stock_of(world, product), price=price)
    return SiteTask(
        f"You run this shop. Change the price of the {product['title']} to {price:.2f} euros.",
        deeds=(Deed(way(product), (wanted,)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(product)[:-1])),
    )


@template("shop", "medium", "change")
def rename_product(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Give a product another title."""
    product, other = products(world, rng, 2)
    title = f"{rng.choice(NEW_NAMES)} {product['title'].split()[-1]}"

    def way(one: Row) -> tuple[str, ...]:
        return (*edit_page_of(one), f"type 'Title field' {title!r} clear", "click 'Save button'")

    return SiteTask(
        f"You run this shop. Rename the product {product['title']} to {title}.",
        deeds=(Deed(way(product), (updated(PRODUCT, product, title=title),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("shop", "medium", "configure")
def hide_product(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Take a product out of the catalogue."""
    product, other = products(world, rng, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (*edit_page_of(one), "click 'Is public checkbox'", "click 'Save button'")

    return SiteTask(
        f"You run this shop. The {product['title']} shall no longer be public, but stay as it is.",
        deeds=(Deed(way(product), (updated(PRODUCT, product, is_public=0),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("shop", "medium", "moderate")
def reject_review(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Reject a review."""
    review = rng.choice(world.rows("shop.reviews_productreview"))
    user = world.row("shop.auth_user", review["user_id"])
    product = world.row(PRODUCT, review["product_id"])
    # The stars of a product are counted again when a review changes.
    left = world.rows(
        "shop.reviews_productreview", "product_id = ? AND id != ?", (product["id"], review["id"])
    )
    rating = sum(one["score"] for one in left) / len(left) if left else None
    rows = [updated("shop.reviews_productreview", review, status=2)]
    if rating != product["rating"]:
        rows.append(updated(PRODUCT, product, rating=rating))
    way = (
        f"go '{ADDRESS}/dashboard/reviews/{review['id']}/'",
        "click 'Approved combobox'",
        "click 'Rejected option'",
        "click 'Save button'",
    )
    return SiteTask(
        f"You run this shop. Reject the review of the {product['title']} by "
        f"{user['first_name']} {user['last_name']}.",
        deeds=(Deed(way, tuple(rows)),),
        wrong=(WrongEnd((way[0], "type 'Title field' 'x' clear", way[3])),),
    )


@template("shop", "hard", "change")
def process_order(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Set a pending order to being processed."""
    orders = world.rows("shop.order_order", "status = 'Pending'")
    if len(orders) < 2:
        return None
    order, other = rng.sample(orders, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/dashboard/orders/{one['number']}/'",
            "click 'Change status button'",
        )

    rows = [updated("shop.order_order", order, status="Being processed")]
    rows.append(
        inserted(
            "shop.order_orderstatuschange", order_id=order["id"], old_status="Pending",
            new_status="Being processed",
        )
    )  # fmt: skip
    rows.append(inserted("shop.order_ordernote", order_id=order["id"], note_type="System"))
    return SiteTask(
        f"You run this shop. Set the status of the order {order['number']} to 'Being processed'.",
        deeds=(Deed(way(order), tuple(rows)),),
        wrong=(WrongEnd(way(other)),),
    )
