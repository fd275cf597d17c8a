"""The graph of who spoke to whom in an episode, as SVG: players in a circle, an arrow per pair.

Widths grow with the number of lines that a reader was shown of a speaker. All graphs that are drawn
beside each other share the scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from palaestra.evaluation.statistics.conversation import Conversation
from palaestra.viewer.charts import COLOURS
from palaestra.viewer.texts import line as shortened

HEIGHT = 190
RADIUS = 58, HEIGHT / 2 - 30  # pixels: of the circle, across and down
LETTER = 9.5  # pixels: about the width of a letter in a label
LONGEST = 12  # letters of a label
NODE = 6  # pixels: the radius of a player
WIDEST = 6.0  # pixels: the arrow with the most lines, if it has room
ROOM = 30.0  # pixels: the widest arrows of all players beside each other
BEND = 0.16  # of an arrow's length: how far its middle lies aside, so that two directions part
Edges = Mapping[tuple[str, str], int]


def speech_graphs(found: Conversation) -> list[tuple[str, Markup]]:
    """Return the graph of the whole episode with a title, then of its thirds if they differ.

    Thirds differ if other players spoke to each other in them. Empty where nobody was shown
    anything.
    """
    whole = found.edges()
    if not whole:
        return []
    most = max(whole.values())
    graphs = [("all turns", _graph(found.players, whole, most))]
    count = len(found.moves)
    parts = list(pairwise(round(count * third / 3) for third in range(4)))
    thirds = [found.edges(start, stop) for start, stop in parts]
    if count >= 3 and any(third.keys() != thirds[0].keys() for third in thirds):
        most = max(number for third in thirds for number in third.values())
        for (start, stop), third in zip(parts, thirds, strict=True):
            graphs.append((f"turns {start + 1} to {stop}", _graph(found.players, third, most)))
    return graphs


def _graph(players: Sequence[str], edges: Edges, most: int) -> Markup:
    """Draw one graph; `most` lines have the widest arrow."""
    names = [shortened(player, LONGEST) for player in players]
    width = 2 * (RADIUS[0] + NODE + 4 + LETTER * max(map(len, names)))
    widest = min(WIDEST, ROOM / len(players))
    places = dict(zip(players, _circle(len(players), width / 2), strict=True))
    pairs = ", ".join(f"{a} to {b} {n}" for (a, b), n in edges.items()) or "nobody spoke"
    parts = [
        f'<svg class="chart graph" role="img" viewBox="0 0 {width:.0f} {HEIGHT}">',
        f"<title>{escape(shortened(pairs, 2000))}</title>",
    ]
    for (speaker, reader), number in edges.items():
        colour = f"s{list(players).index(speaker) % COLOURS}"
        title = f"{shortened(speaker, 80)} to {shortened(reader, 80)}: {number}"
        parts += _arrow(places[speaker], places[reader], widest * number / most, colour, title)
    for number, (name, (x, y)) in enumerate(zip(names, places.values(), strict=True)):
        side = "start" if x > width / 2 + 1 else "end" if x < width / 2 - 1 else "middle"
        dx = {"start": NODE + 4, "end": -NODE - 4, "middle": 0}[side]
        dy = 5 if dx else (NODE + 15 if y > HEIGHT / 2 else -NODE - 6)
        parts.append(
            f'<circle class="fill s{number % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="{NODE}"/>'
            f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{side}">{escape(name)}</text>'
        )
    return Markup("".join((*parts, "</svg>")))


def _circle(count: int, middle: float) -> list[tuple[float, float]]:
    """Return places on a circle, the first one at the top; two stand side by side."""
    begin = math.pi if count == 2 else -math.pi / 2
    angles = [begin + 2 * math.pi * number / count for number in range(count)]
    return [
        (middle + RADIUS[0] * math.cos(angle), HEIGHT / 2 + RADIUS[1] * math.sin(angle))
        for angle in angles
    ]


def _arrow(
    begin: tuple[float, float], end: tuple[float, float], width: float, colour: str, title: str
) -> list[str]:
    """Draw a bent arrow between the rims of two players."""
    (x0, y0), (x1, y1) = begin, end
    length = math.hypot(x1 - x0, y1 - y0)
    bend_x = (x0 + x1) / 2 + BEND * (y1 - y0)
    bend_y = (y0 + y1) / 2 - BEND * (x1 - x0)
    width = max(0.7, width)
    head = 4 + width
    out = _toward((x0, y0), (bend_x, bend_y), NODE + 1)
    tip = _toward((x1, y1), (bend_x, bend_y), NODE + 1)
    neck = _toward((x1, y1), (bend_x, bend_y), min(length / 2, NODE + 1 + head))
    along_x, along_y = (tip[0] - neck[0]) / head, (tip[1] - neck[1]) / head
    half = 2 + width / 2
    left = neck[0] - half * along_y, neck[1] + half * along_x
    right = neck[0] + half * along_y, neck[1] - half * along_x
    curve = f"M{_at(out)}Q{_at((bend_x, bend_y))} {_at(neck)}"
    words = f"<title>{escape(title)}</title>"
    return [
        f'<path class="edge {colour}" stroke-width="{width:.1f}" d="{curve}">{words}</path>',
        f'<path class="fill {colour}" d="M{_at(tip)}L{_at(left)}L{_at(right)}Z">{words}</path>',
    ]


def _toward(
    begin: tuple[float, float], end: tuple[float, float], length: float
) -> tuple[float, float]:
    """Return the point at that distance from `begin` on the way to `end`."""
    whole = math.hypot(end[0] - begin[0], end[1] - begin[1]) or 1.0
    share = length / whole
    return begin[0] + share * (end[0] - begin[0]), begin[1] + share * (end[1] - begin[1])


def _at(place: tuple[float, float]) -> str:
    return f"{place[0]:.1f} {place[1]:.1f}"
