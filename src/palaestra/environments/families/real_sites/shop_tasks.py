"""Tasks in the shop."""

from __future__ import annotations

import random

from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    inserted,
    template,
)


@template("shop", "easy", "buy")
def add_to_cart(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Put a product into the cart."""
    product, other = rng.sample(world.rows("shop.catalogue_product"), 2)
    [basket] = world.rows("shop.basket_basket", "status = 'Open'")
    line = inserted(
        "shop.basket_line", basket_id=basket["id"], product_id=product["id"], quantity=1
    )

    def way(title: str) -> tuple[str, ...]:
        return (
            f"type 'Search field' {title!r} enter",
            f"click 'first {title} link'",
            "click 'Add to cart button'",
        )

    return SiteTask(
        f"Put one {product['title']} into the cart.",
        deeds=(Deed(way(product["title"]), (line,)),),
        wrong=(WrongEnd(way(other["title"])), WrongEnd(way(product["title"]), None)),
    )
