"""Challenges of cognition: counting, calculating, comparing, remembering; most need a look."""

from __future__ import annotations

import random
from collections.abc import Mapping

from palaestra.environments.families.challenges.challenge import Challenge, Maker, at, equals
from palaestra.environments.families.challenges.vocabulary import COLOURS, WORDS

SHAPES = ("circle", "square", "triangle")
LEVELS = tuple(range(0, 256, 51))  # of a colour's channel


def arithmetic(rng: random.Random) -> Challenge:
    a, b, c, d = rng.randrange(12, 30), rng.randrange(3, 10), *rng.sample(range(2, 60), 2)
    return Challenge(
        "Type the result of the calculation in the picture.",
        (f"type 'Result' '{a * b + c - d}'", "click 'Check'"),
        equals(str(a * b + c - d)),
        shown={"text": f"{a} × {b} + {c} − {d}"},
    )


def table_lookup(rng: random.Random) -> Challenge:
    kinds = rng.sample(("tea", "cup", "lamp", "rug", "clock"), 3)
    prices = rng.sample(range(100, 1000), len(WORDS))
    rows = [(word, rng.choice(kinds), price, rng.randrange(20)) for word, price in
            zip(rng.sample(WORDS, len(WORDS)), prices, strict=True)]  # fmt: skip
    kind = next(kind for _, kind, _, stock in rows if stock >= 5)
    fitting = [(price, word) for word, of, price, stock in rows if of == kind and stock >= 5]
    _, word = min(fitting)
    return Challenge(
        f"Type the name of the cheapest {kind} of which at least 5 are in stock.",
        (f"type 'Name' '{word}'", "click 'Check'"),
        equals(word),
        shown={"rows": rows},
    )


def odd_colour(rng: random.Random) -> Challenge:
    odd = [rng.randrange(28) for _ in range(3)]
    boards = []
    for cell in odd:
        colour = [rng.randrange(60, 190) for _ in range(3)]
        other = list(colour)
        other[rng.randrange(3)] += rng.choice((-40, 40))
        boards.append({"colour": colour, "other": other, "odd": cell})
    return Challenge(
        "One square has another colour. Click it; three boards follow each other.",
        tuple(f"click {at(100 * (cell % 7) + 40, 100 * (cell // 7) + 40)}" for cell in odd),
        equals(odd),
        shown={"boards": boards},
    )


def clock(rng: random.Random) -> Challenge:
    hour, minute = rng.randrange(1, 13), rng.randrange(0, 60)
    return Challenge(
        "Type the time that the clock shows, such as 4:05.",
        (f"type 'Time' '{hour}:{minute:02}'", "click 'Check'"),
        equals(f"{hour}:{minute:02}"),
        shown={"hour": hour, "minute": minute},
    )


def counting(rng: random.Random) -> Challenge:
    colours = rng.sample(COLOURS, 3)
    kinds = [(colour, shape) for colour in colours for shape in SHAPES]
    places = rng.sample([(column, row) for column in range(14) for row in range(8)], 45)
    shapes = [[*rng.choice(kinds), 54 * x + 27, 50 * y + 25] for x, y in places]
    asked = rng.sample(kinds, 3)
    counts = [sum(one[:2] == [*kind] for one in shapes) for kind in asked]
    fields = [f"{colour} {shape}s" for colour, shape in asked]
    return Challenge(
        f"Count the {fields[0]}, the {fields[1]} and the {fields[2]} in the picture.",
        (*(f"type '{field}' '{n}'" for field, n in zip(fields, counts, strict=True)),
         "click 'Check'"),
        equals([str(count) for count in counts]),
        shown={"shapes": shapes, "fields": fields},
    )  # fmt: skip


def colour_mix(rng: random.Random) -> Challenge:
    wanted = [rng.choice(LEVELS[1:]) for _ in range(3)]
    names = ("Red", "Green", "Blue")
    return Challenge(
        "Mix the colour on the left: choose red, green and blue until the right half is equal.",
        (*(f"select '{name}' '{level}'" for name, level in zip(names, wanted, strict=True)),
         "click 'Check'"),
        equals(wanted),
        shown={"wanted": wanted, "names": names, "levels": LEVELS},
    )  # fmt: skip


def sequences(rng: random.Random) -> Challenge:
    start, step, growth = rng.randrange(2, 20), rng.randrange(3, 12), rng.randrange(2, 6)
    first, second = rng.sample(range(2, 9), 2)
    rows = [
        [start + step * n for n in range(6)],
        [start + step * n + growth * n * (n - 1) // 2 for n in range(6)],
        [first, second],
        [rng.randrange(2, 5)],
    ]
    while len(rows[2]) < 6:
        rows[2].append(rows[2][-1] + rows[2][-2])
    factor = rng.randrange(2, 4)
    while len(rows[3]) < 6:
        rows[3].append(rows[3][-1] * factor + 1)
    rng.shuffle(rows)
    right = [str(row[-1]) for row in rows]
    return Challenge(
        "Type the next number of each row.",
        (*(f"type 'Row {n}' '{number}'" for n, number in enumerate(right, 1)), "click 'Check'"),
        equals(right),
        shown={"rows": [row[:-1] for row in rows]},
    )


def word_flash(rng: random.Random) -> Challenge:
    words = rng.sample(WORDS, 6)
    return Challenge(
        "Click Begin. Six words follow, each for two seconds. Then type them in their order, "
        "separated by blanks.",
        ("click 'Begin'", "wait 14", f"type 'Words' '{' '.join(words)}'", "click 'Check'"),
        equals(" ".join(words)),
        shown={"words": words},
    )


COGNITION: Mapping[str, Maker] = {
    "arithmetic": arithmetic, "table-lookup": table_lookup, "odd-colour": odd_colour,
    "clock": clock, "counting": counting, "colour-mix": colour_mix, "sequences": sequences,
    "word-flash": word_flash,
}  # fmt: skip
