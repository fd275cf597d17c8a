"""Tasks in the shop for its customers; those for who runs it are in `shop_dashboard_tasks.py`."""

from __future__ import annotations

import random
from typing import Any

from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.django_users import PASSWORD
from palaestra.environments.families.real_sites.shop import CATEGORIES, MAKES
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    click_on,
    inserted,
    template,
    updated,
)

PRODUCT, STOCK = "shop.catalogue_product", "shop.partner_stockrecord"
NEW_NAMES = ("Evergreen", "Moonlight", "Pebble", "Saffron", "Thistle")
TOWNS = ("Eastbrook", "Northfield", "Southgate", "Westhaven")


def products(world: SiteWorld, rng: random.Random, number: int) -> list[Row]:
    return rng.sample(world.rows(PRODUCT), number)


def stock_of(world: SiteWorld, product: Row) -> Row:
    [found] = world.rows(STOCK, "product_id = ?", (product["id"],))
    return found


def page_of(title: str) -> tuple[str, ...]:
    """Return the gestures that open a product's page."""
    return f"type 'Search field' {title!r} enter", click_on(f"first {title} link")


def attribute(world: SiteWorld, product: Row, number: int, column: str) -> Any:
    """Return the value of a product's attribute; 1 is its material, 2 its weight."""
    table, where = "shop.catalogue_productattributevalue", "product_id = ? AND attribute_id = ?"
    [found] = world.rows(table, where, (product["id"], number))
    return found[column]


@template("shop", "easy", "buy")
def add_to_cart(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Put a product into the cart."""
    product, other = products(world, rng, 2)
    [basket] = world.rows("shop.basket_basket", "status = 'Open'")
    line = inserted(
        "shop.basket_line", basket_id=basket["id"], product_id=product["id"], quantity=1
    )
    add = "click 'first Add to cart button'"
    return SiteTask(
        f"Put one {product['title']} into the cart.",
        deeds=(Deed((*page_of(product["title"]), add), (line,)),),
        wrong=(
            WrongEnd((*page_of(other["title"]), add)),
            WrongEnd((*page_of(product["title"]), add), None),
        ),
    )


@template("shop", "medium", "buy")
def fill_cart(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Put two products into the cart, one of them several times."""
    one, other = products(world, rng, 2)
    count = rng.randint(2, 4)
    [basket] = world.rows("shop.basket_basket", "status = 'Open'")

    def line(product: Row, quantity: int) -> Deed:
        add = ("click 'first Add to cart button'",)
        more = ("click 'first View cart link'", f"type '1 field' '{quantity}' clear")
        held = inserted(
            "shop.basket_line",
            basket_id=basket["id"],
            product_id=product["id"],
            quantity=quantity,
        )
        way = (*page_of(product["title"]), *add)
        return Deed((*way, *more, "click 'Update button'") if quantity > 1 else way, (held,))

    first, second = line(one, count), line(other, 1)
    return SiteTask(
        f"Put {count} of {one['title']} and one {other['title']} into the cart.",
        deeds=(first, second),
        wrong=(WrongEnd(first.gestures), WrongEnd(second.gestures)),
    )


@template("shop", "easy", "find")
def price_of(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say what a product costs."""
    product, other = products(world, rng, 2)
    right, wrong = (stock_of(world, one)["price"] for one in (product, other))
    return SiteTask(
        f"How many euros does the {product['title']} cost?",
        deeds=(Deed(page_of(product["title"])),),
        answer=right,
        wrong=(WrongEnd(answer=str(wrong if wrong != right else wrong + 1)),),
    )


@template("shop", "easy", "find")
def pieces_left(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say how many pieces of a product there are."""
    [product] = products(world, rng, 1)
    count = stock_of(world, product)["num_in_stock"]
    return SiteTask(
        f"How many pieces of the {product['title']} are available?",
        deeds=(Deed(page_of(product["title"])),),
        answer=count,
        wrong=(WrongEnd(answer=str(count + 1)), WrongEnd(answer=f"{count} or {count + 2}")),
    )


@template("shop", "easy", "find")
def material_of(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say what a product is made of."""
    [product] = products(world, rng, 1)
    return SiteTask(
        f"Which material is the {product['title']} made of? One word.",
        deeds=(Deed(page_of(product["title"])),),
        answer=str(attribute(world, product, 1, "value_text")),
        wrong=(WrongEnd(answer="plastic"),),
    )


@template("shop", "medium", "compare")
def heavier_of_two(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say which of two products weighs more."""
    pair = products(world, rng, 2)
    weights = [attribute(world, one, 2, "value_integer") for one in pair]
    if weights[0] == weights[1]:
        return None
    ordered = pair if weights[0] < weights[1] else [pair[1], pair[0]]
    light, heavy = (one["title"] for one in ordered)
    return SiteTask(
        f"Which is heavier, the {pair[0]['title']} or the {pair[1]['title']}?",
        deeds=tuple(Deed(page_of(one["title"])) for one in pair),
        answer=heavy,
        wrong=(WrongEnd(answer=light), WrongEnd(answer=f"{heavy} and {light}")),
    )


@template("shop", "medium", "compare")
def cheapest_of_category(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say which product of a category is the cheapest."""
    category = rng.choice(list(CATEGORIES))
    where = (
        "id IN (SELECT product_id FROM catalogue_productcategory JOIN catalogue_category c "
        "ON c.id = category_id WHERE c.name = ?)"
    )
    found = world.rows(PRODUCT, where, (category,))
    ordered = sorted((stock_of(world, one)["price"], one["title"]) for one in found)
    if len(ordered) < 2 or ordered[0][0] == ordered[1][0]:
        return None
    sort = "select 'Sort by' 'Price low to high'"
    return SiteTask(
        f"Which product of the category {category} is the cheapest?",
        deeds=(Deed((click_on(f"first {category} link"), sort)),),
        answer=ordered[0][1],
        wrong=(WrongEnd(answer=ordered[1][1]), WrongEnd(answer=ordered[-1][1])),
    )


@template("shop", "easy", "buy")
def wish_for(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Put a product on the wish list."""
    product, other = products(world, rng, 2)
    [wishes] = world.rows("shop.wishlists_wishlist")
    line = inserted(
        "shop.wishlists_line", wishlist_id=wishes["id"], product_id=product["id"], quantity=1
    )
    add = ("click 'Add to wish list'", "click 'Gifts wish list link'")
    return SiteTask(
        f"Put the {product['title']} on your wish list.",
        deeds=(Deed((*page_of(product["title"]), *add), (line,)),),
        wrong=(WrongEnd((*page_of(other["title"]), *add)),),
    )


@template("shop", "easy", "configure")
def new_wish_list(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Make a wish list of a name."""
    name, other = rng.sample(NEW_NAMES, 2)
    [mine] = world.rows("shop.wishlists_wishlist")
    made = inserted(
        "shop.wishlists_wishlist", owner_id=mine["owner_id"], name=name, visibility="Private"
    )

    def way(called: str) -> tuple[str, ...]:
        return (
            "click 'Account link'",
            "click 'Wish Lists link'",
            "click 'Create a new wish list'",
            f"type 'Name field' {called!r} clear",
            "click 'Save button'",
        )

    return SiteTask(
        f"Create a private wish list that is called {name}.",
        deeds=(Deed(way(name), (made,)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("shop", "medium", "configure")
def move_house(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the town of the address in the address book."""
    [address] = world.rows("shop.address_useraddress")
    town, other = rng.sample(TOWNS, 2)

    def way(name: str) -> tuple[str, ...]:
        return (
            "click 'Account link'",
            "click 'Address Book link'",
            "click 'Edit link'",
            f"type 'City field' {name!r} clear",
            "click 'Save button'",
        )

    return SiteTask(
        f"You moved within the same street name, to {town}: change the city of your address.",
        deeds=(Deed(way(town), (updated("shop.address_useraddress", address, line4=town),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("shop", "easy", "configure")
def new_first_name(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the first name in the profile."""
    user = world.row("shop.auth_user", 1)
    name = rng.choice([one for one in NEW_NAMES if one != user["first_name"]])
    way = (
        "click 'Account link'",
        "click 'Edit profile'",
        f"type 'First name field' {name!r} clear",
        "click 'Save button'",
    )
    return SiteTask(
        f"Change the first name in your profile to {name}.",
        deeds=(Deed(way, (updated("shop.auth_user", user, first_name=name),)),),
        wrong=(WrongEnd((*way[:2], f"type 'Last name field' {name!r} clear", way[3])),),
    )


@template("shop", "easy", "impossible")
def unknown_product(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Buy what the shop does not sell; what it sells instead does not do."""
    sold = {one["title"] for one in world.rows(PRODUCT)}
    kinds = [kind for kinds in CATEGORIES.values() for kind in kinds]
    title = rng.choice(
        [name for make in MAKES for kind in kinds if (name := f"{make} {kind}") not in sold]
    )
    [other] = products(world, rng, 1)
    return SiteTask(
        f"Put one {title} into the cart.",
        deeds=(Deed((f"type 'Search field' {title!r} enter",)),),
        wrong=(
            WrongEnd(),
            WrongEnd((*page_of(other["title"]), "click 'first Add to cart button'"), None),
        ),
        possible=False,
    )


@template("shop", "medium", "find")
def own_order_signed_out(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Sign in, and say what an order of one's own cost."""
    user = world.row("shop.auth_user", 1)
    order, other = rng.sample(world.rows("shop.order_order", "user_id = 1"), 2)
    way = (
        "click 'Login or register'",
        f"type 'first Email address field' {user['email']!r}",
        f"type 'first Password field' {PASSWORD!r}",
        "click 'Log In button'",
        "click 'Account link'",
        "click 'Order History link'",
    )
    return SiteTask(
        f"Sign in as {user['email']} with the password {PASSWORD}. What did your order "
        f"{order['number']} cost in euros?",
        deeds=(Deed(way),),
        answer=order["total_incl_tax"],
        wrong=(WrongEnd(answer=str(other["total_incl_tax"])), WrongEnd(way[:4])),
        signed_in=False,
    )


@template("shop", "hard", "plan")
def place_order(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Buy a product: from the search to the end of the checkout."""
    product, other = products(world, rng, 2)
    [basket] = world.rows("shop.basket_basket", "status = 'Open'")
    stock, price = stock_of(world, product), stock_of(world, product)["price"]
    order = inserted(
        "shop.order_order", user_id=1, basket_id=basket["id"], total_incl_tax=price,
        status="Pending",
    )  # fmt: skip
    rows = (
        order,
        inserted("shop.order_line", order_id=-1, product_id=product["id"], quantity=1),
        inserted("shop.order_lineprice", order_id=-1, quantity=1),
        inserted("shop.order_shippingaddress"),
        inserted("shop.basket_line", basket_id=basket["id"], product_id=product["id"], quantity=1),
        updated("shop.basket_basket", basket, status="Submitted"),
        updated(STOCK, stock, num_allocated=1),
    )

    def way(title: str) -> tuple[str, ...]:
        return (
            *page_of(title),
            "click 'first Add to cart button'",
            "click 'Checkout now'",
            "click 'Ship to your default shipping address button'",
            "click 'Continue link'",
            "click 'Place order button'",
        )

    return SiteTask(
        f"Order one {product['title']}, to be sent to your default shipping address.",
        deeds=(Deed(way(product["title"]), rows),),
        wrong=(WrongEnd(way(other["title"])), WrongEnd(way(product["title"])[:-1])),
    )
