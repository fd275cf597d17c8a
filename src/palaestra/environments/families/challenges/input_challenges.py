"""Challenges of complex input: drags, sliders, shortcuts, files, clipboard, drawing, hovering."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from palaestra.environments.families.challenges.challenge import Challenge, Maker, at, equals
from palaestra.environments.families.challenges.vocabulary import MONTHS, WORDS, token

NEAR = 14  # pixels from a dot that count as on it


def drag_sort(rng: random.Random) -> Challenge:
    words, weights = rng.sample(WORDS, 5), rng.sample(range(10, 99), 5)
    things = [f"{word} {weight} kg" for word, weight in zip(words, weights, strict=True)]
    right = sorted(things, key=lambda thing: int(thing.split()[1]), reverse=rng.random() < 0.5)
    first = (
        "lightest" if right[0] == min(things, key=lambda thing: thing.split()[1]) else "heaviest"
    )
    return Challenge(
        f"Drag the things into the slots, the {first} into slot 1, and so on. Then click Done.",
        (*(f"drag '{thing}' to 'Slot {at + 1}'" for at, thing in enumerate(right)), "click 'Done'"),
        equals(right),
        shown={"things": things},
    )


def sliders(rng: random.Random) -> Challenge:
    names = rng.sample(("Volume", "Bass", "Treble", "Balance", "Tempo"), 3)
    wanted = [rng.choice([value for value in range(11) if value != 5]) for _ in names]
    plan = []
    for name, value in zip(names, wanted, strict=True):
        end, arrow = ("Home", "ArrowRight") if value < 5 else ("End", "ArrowLeft")
        plan.append(f"press 'the {name} slider' '{end}'")
        plan += [f"press '{arrow}'"] * min(value, 10 - value)
    told = ", ".join(f"{name} to {10 * value}" for name, value in zip(names, wanted, strict=True))
    return Challenge(
        f"Set {told}. Then click Apply.",
        (*plan, "click 'Apply'"),
        equals([10 * value for value in wanted]),
        shown={"names": names},
    )


def shortcuts(rng: random.Random) -> Challenge:
    held = ("Control+", "Alt+", "Control+Shift+", "Alt+Shift+")
    wanted = [f"{rng.choice(held)}{key}" for key in rng.sample("bgjklmu", 4)]
    return Challenge(
        f"Press these keys, in this order: {', '.join(wanted)}. Then press Enter.",
        (*(f"press '{keys}'" for keys in wanted), "press 'Enter'"),
        equals(wanted),
    )


def upload(rng: random.Random) -> Challenge:
    files = {f"invoice-{month.lower()}.txt": token(rng) for month in MONTHS}
    name = rng.choice([*files])
    return Challenge(
        f"Of the files invoice-january.txt to invoice-december.txt, send {name}.",
        (f"upload 'Invoice' '{name}'", "click 'Send'"),
        equals(files[name]),
        files={name: text.encode() for name, text in files.items()},
    )


def clipboard(rng: random.Random) -> Challenge:
    keys = {word: f"{token(rng)}-{token(rng)}" for word in rng.sample(WORDS, 6)}
    word = rng.choice([*keys])
    return Challenge(
        f"Copy the key of {word} into the field below, which takes no typing. Then click Check.",
        (f"click 'Key of {word}'", "press 'Control+a'", "press 'Control+c'", "click 'Copied key'",
         "press 'Control+v'", "click 'Check'"),
        equals(keys[word]),
        shown={"keys": keys},
    )  # fmt: skip


def connect_dots(rng: random.Random) -> Challenge:
    cells = rng.sample([(column, row) for column in range(7) for row in range(4)], 6)
    dots = [
        (60 + 100 * column + rng.randrange(-20, 21), 50 + 100 * row + rng.randrange(-20, 21))
        for column, row in cells
    ]
    lines = [*pairwise(dots)]

    def proof(given: Any) -> bool:
        try:
            return len(given) == len(lines) and all(
                abs(float(a) - b) <= NEAR
                for drawn, line in zip(given, lines, strict=True)
                for point, dot in zip(drawn, line, strict=True)
                for a, b in zip(point, dot, strict=True)
            )
        except (TypeError, ValueError, OverflowError):
            return False

    return Challenge(
        "Draw straight lines with the mouse: from dot 1 to dot 2, from 2 to 3, and so on to 6.",
        tuple(f"drag {at(*start)} to {at(*end)}" for start, end in lines),
        proof,
        shown={"dots": dots},
    )


def hover_menu(rng: random.Random) -> Challenge:
    words = iter(rng.sample(WORDS, 3 + 9 + 18))
    menu = {
        next(words): {next(words): [next(words), next(words)] for _ in range(3)} for _ in range(3)
    }
    first = rng.choice([*menu])
    second = rng.choice([*menu[first]])
    third = rng.choice(menu[first][second])
    return Challenge(
        f"In the menu, which opens under the pointer, choose {first} → {second} → {third}.",
        (f"hover '{first}'", f"hover '{second}'", f"click '{third}'"),
        equals([first, second, third]),
        shown={"menu": menu},
    )


def double_click(rng: random.Random) -> Challenge:
    factor = rng.choice((3, 4, 5))
    right = rng.sample(range(factor * 4, 100, factor), 3)
    others = [number for number in range(10, 100) if number % factor]
    numbers = [*right, *rng.sample(others, 9)]
    rng.shuffle(numbers)
    return Challenge(
        f"A double click turns a tile over. Turn over all multiples of {factor}, no others, and "
        "click Done.",
        (*(f"double '{number}'" for number in right), "click 'Done'"),
        equals(sorted(right)),
        shown={"numbers": numbers},
    )


INPUT: Mapping[str, Maker] = {
    "drag-sort": drag_sort, "sliders": sliders, "shortcuts": shortcuts, "upload": upload,
    "clipboard": clipboard, "connect-dots": connect_dots, "hover-menu": hover_menu,
    "double-click": double_click,
}  # fmt: skip
