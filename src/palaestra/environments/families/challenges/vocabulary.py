"""Words and small data from which challenges are drawn."""

from __future__ import annotations

import random

WORDS = (
    "amber", "anchor", "birch", "cabin", "candle", "cedar", "cobalt", "copper", "coral", "falcon",
    "garnet", "harbor", "ivory", "jasper", "kettle", "lantern", "maple", "meadow", "nickel",
    "orchid", "otter", "pebble", "pepper", "quartz", "raven", "saddle", "silver", "timber",
    "velvet", "walnut", "willow", "zephyr",
)  # fmt: skip
PEOPLE = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Kai", "Lena")
COLOURS = ("red", "green", "blue", "orange", "purple", "black")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def token(rng: random.Random) -> str:
    """Return a word with a number: one of 28,800."""
    return f"{rng.choice(WORDS)}-{rng.randrange(100, 1000)}"
