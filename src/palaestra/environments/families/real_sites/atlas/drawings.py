"""Pictures that only a look decides: what they show stands in no text of the page.

A kind draws a question, which is the same wherever the album has its number, and the pictures with
the right answer, which differ from world to world. So text alone says nothing about the answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SIZE = (320, 240)  # of a picture in pixels
COLOURS = {
    "red": "#c62828", "blue": "#1e63c4", "green": "#2e8b3d", "orange": "#ef8a17",
    "purple": "#7b2fa0", "grey": "#777777",
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "star")
LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True, slots=True)
class Album:
    """A question about pictures; `{album}` stands for where they are."""

    question: str
    pictures: tuple[str, ...]  # as SVG; called A, B …, if there are several
    answer: str


def _svg(shapes: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE[0]}" height="{SIZE[1]}">'
        f'<rect width="{SIZE[0]}" height="{SIZE[1]}" fill="#ffffff"/>{shapes}</svg>'
    )


def _shape(kind: str, colour: str, x: float, y: float, radius: float) -> str:
    fill = f'fill="{COLOURS[colour]}"'
    if kind == "circle":
        return f'<circle cx="{x}" cy="{y}" r="{radius}" {fill}/>'
    if kind == "square":
        side = 1.7 * radius
        return (
            f'<rect x="{x - side / 2}" y="{y - side / 2}" width="{side}" height="{side}" {fill}/>'
        )
    corners, inner = (3, 1.0) if kind == "triangle" else (10, 0.45)
    points = " ".join(
        f"{x + r * math.sin(turn):.1f},{y - r * math.cos(turn):.1f}"
        for n in range(corners)
        for turn, r in [(2 * math.pi * n / corners, radius * (inner if n % 2 else 1.0))]
    )
    return f'<polygon points="{points}" {fill}/>'


def _label(x: float, y: float, words: str, size: int = 14) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-family="sans-serif" '
        f'text-anchor="middle" fill="#222222">{words}</text>'
    )


def beside(question: random.Random, hidden: random.Random) -> Album:
    """Draw four pictures of the same two figures; in one of them they stand as asked."""
    first, second = question.sample([(c, s) for c in COLOURS for s in SHAPES], 2)
    where = question.choice(("to the left of", "to the right of", "above", "below"))
    turns = {"to the left of": 0, "below": 1, "to the right of": 2, "above": 3}
    order = ["to the left of", "to the right of", "above", "below"]
    hidden.shuffle(order)
    pictures = []
    for one in order:
        turn, far = turns[one] * math.pi / 2, hidden.uniform(55, 80)
        x, y = SIZE[0] / 2 + hidden.uniform(-25, 25), SIZE[1] / 2 + hidden.uniform(-12, 12)
        # The first figure lies in the direction `turn` from the middle, the second opposite.
        dx, dy = -far * math.cos(turn), far * math.sin(turn)
        radius = hidden.uniform(18, 28)
        shapes = _shape(first[1], first[0], x + dx, y + dy, radius)
        pictures.append(_svg(shapes + _shape(second[1], second[0], x - dx, y - dy, radius)))
    asked = f"In which picture of {{album}} is the {' '.join(first)} {where} the {' '.join(second)}"
    return Album(f"{asked}: A, B, C or D?", tuple(pictures), LETTERS[order.index(where)])


def bars(question: random.Random, hidden: random.Random) -> Album:
    """Draw a bar chart without numbers."""
    words = question.choice(("highest", "lowest", "second highest"))
    names = ("A", "B", "C", "D", "E")
    heights = [30 + 30 * step + hidden.uniform(-6, 6) for step in range(len(names))]
    hidden.shuffle(heights)
    ranked = sorted(zip(heights, names, strict=True))
    right = {"highest": ranked[-1], "lowest": ranked[0], "second highest": ranked[-2]}[words][1]
    colour = COLOURS[hidden.choice(list(COLOURS))]
    shapes = ""
    for number, (name, height) in enumerate(zip(names, heights, strict=True)):
        x = 30 + 55 * number
        shapes += f'<rect x="{x}" y="{210 - height:.0f}" width="36" height="{height:.0f}" '
        shapes += f'fill="{colour}"/>' + _label(x + 18, 228, name)
    return Album(
        f"Which bar of the chart in {{album}} is the {words}: A, B, C, D or E?",
        (_svg(shapes),), right,
    )  # fmt: skip


def years(question: random.Random, hidden: random.Random) -> Album:
    """Draw a curve over years."""
    words = question.choice(("highest", "lowest"))
    first = hidden.randint(1960, 2010)
    values = [hidden.uniform(60, 150) for _ in range(8)]
    at = hidden.randrange(1, 7)
    values[at] = 200.0 if words == "highest" else 12.0
    points = [(32 + 37 * n, 205 - value) for n, value in enumerate(values)]
    line = " ".join(f"{x},{y:.0f}" for x, y in points)
    shapes = f'<polyline points="{line}" fill="none" stroke="#1e63c4" stroke-width="3"/>'
    for n, (x, y) in enumerate(points):
        shapes += f'<circle cx="{x}" cy="{y:.0f}" r="4" fill="#1e63c4"/>'
        shapes += _label(x, 228, str(first + n), 12)
    return Album(
        f"In which year is the curve in {{album}} {words}?", (_svg(shapes),), str(first + at)
    )


def shares(question: random.Random, hidden: random.Random) -> Album:
    """Draw a pie chart whose parts have colours only."""
    words = question.choice(("largest", "smallest"))
    colours = hidden.sample(list(COLOURS), 4)
    sizes = [0.1, 0.2, 0.28, 0.42]
    hidden.shuffle(sizes)
    start, shapes = hidden.uniform(0, 2 * math.pi), ""
    for colour, share in zip(colours, sizes, strict=True):
        end = start + 2 * math.pi * share
        (x1, y1), (x2, y2) = (
            (160 + 95 * math.cos(turn), 120 + 95 * math.sin(turn)) for turn in (start, end)
        )
        path = f"M160,120 L{x1:.1f},{y1:.1f} A95,95 0 {int(share > 0.5)} 1 {x2:.1f},{y2:.1f} Z"
        shapes += f'<path d="{path}" fill="{COLOURS[colour]}" stroke="#ffffff"/>'
        start = end
    wanted = max(sizes) if words == "largest" else min(sizes)
    return Album(
        f"Which colour has the {words} part of the chart in {{album}}: "
        f"{', '.join(COLOURS)}?",
        (_svg(shapes),), colours[sizes.index(wanted)],
    )  # fmt: skip


def clock(question: random.Random, hidden: random.Random) -> Album:
    """Draw a clock with two hands."""
    del question  # there is one way to ask
    hour, minute = hidden.randint(1, 12), hidden.randrange(0, 60, 5)
    shapes = '<circle cx="160" cy="120" r="100" fill="#fafafa" stroke="#222222" stroke-width="4"/>'
    for n in range(1, 13):
        turn = math.pi * n / 6
        shapes += _label(160 + 82 * math.sin(turn), 125 - 82 * math.cos(turn), str(n))
    for turn, length, width in (
        (math.pi * (hour + minute / 60) / 6, 48, 7),
        (math.pi * minute / 30, 74, 3),
    ):
        x, y = 160 + length * math.sin(turn), 120 - length * math.cos(turn)
        shapes += f'<line x1="160" y1="120" x2="{x:.1f}" y2="{y:.1f}" '
        shapes += f'stroke="#222222" stroke-width="{width}" stroke-linecap="round"/>'
    return Album(
        "What time does the clock in {album} show (hours from 1 to 12, such as 4:05)?",
        (_svg(shapes),), f"{hour}:{minute:02}",
    )  # fmt: skip


def plan(question: random.Random, hidden: random.Random) -> Album:
    """Draw a plan with four houses, a park and a river."""
    words = question.choice(("in the park", "nearest to the bridge"))
    bridge = hidden.randrange(60, 260)
    park_x = hidden.choice([x for x in (20, 190) if abs(x + 55 - bridge) > 70])
    shapes = f'<rect x="{park_x}" y="20" width="110" height="80" fill="#cfe5c0"/>'
    shapes += '<rect y="125" width="320" height="26" fill="#9cc4e4"/>'
    shapes += f'<rect x="{bridge - 9}" y="119" width="18" height="38" fill="#8d6e4f"/>'
    places = {
        "in the park": (park_x + 30, 62),
        "nearest to the bridge": (bridge + hidden.choice((-8, 8)), 182),
    }
    far = sorted((20, 110, 210, 300), key=lambda x: -abs(x - bridge))[:2]
    points = [*places.values(), *((x, 205) for x in far)]
    letters = hidden.sample(LETTERS, 4)
    for letter, (x, y) in zip(letters, points, strict=True):
        shapes += f'<rect x="{x - 11}" y="{y - 11}" width="22" height="22" fill="#f4d58d" '
        shapes += f'stroke="#222222"/>{_label(x, y + 5, letter)}'
    right = letters[list(places).index(words)]
    return Album(
        f"Which house of the plan in {{album}} is {words} (green: park, blue: river, brown: "
        "bridge): A, B, C or D?",
        (_svg(shapes),), right,
    )  # fmt: skip


def count(question: random.Random, hidden: random.Random) -> Album:
    """Draw many figures, some of which are counted."""
    colour, shape = question.choice(list(COLOURS)), question.choice(SHAPES)
    number, total = hidden.randint(2, 9), 14
    others = [(c, s) for c in COLOURS for s in SHAPES if (c, s) != (colour, shape)]
    drawn = [(colour, shape)] * number + [hidden.choice(others) for _ in range(total - number)]
    hidden.shuffle(drawn)
    cells = hidden.sample(range(24), total)
    shapes = "".join(
        _shape(kind, tint, 30 + 52 * (cell % 6), 35 + 57 * (cell // 6), 17)
        for (tint, kind), cell in zip(drawn, cells, strict=True)
    )
    return Album(
        f"How many {colour} {shape}s are in the picture of {{album}}?", (_svg(shapes),), str(number)
    )


KINDS: Mapping[str, Callable[[random.Random, random.Random], Album]] = {
    "beside": beside,
    "bars": bars,
    "years": years,
    "shares": shares,
    "clock": clock,
    "plan": plan,
    "count": count,
}
