"""The map of a town as a picture: a window on its streets, drawn as SVG."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

from palaestra.environments.families.real_sites.atlas.streets import (
    COLUMNS,
    Streets,
)

SIZE = (640, 480)  # of the picture in pixels
ZOOMS = (1, 2, 4)  # how many times larger than the whole town
EDGE = 120  # metres around the crossings
STEPS = 8  # steps from one side of the town to the other


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a town that is shown."""

    x: int = 0  # of its left and upper edge, in steps
    y: int = 0
    zoom: int = 0  # index into `ZOOMS`

    @property
    def width(self) -> int:
        """Its width and height in steps."""
        return STEPS // ZOOMS[self.zoom]

    def inside(self) -> Window:
        """Return the nearest window that lies within the town."""
        zoom = min(max(self.zoom, 0), len(ZOOMS) - 1)
        most = STEPS - STEPS // ZOOMS[zoom]
        return Window(min(max(self.x, 0), most), min(max(self.y, 0), most), zoom)

    def moved(self) -> dict[str, Window]:
        """Return the windows to which buttons lead, by their words; only others than this."""
        half = max(1, self.width // 2)
        quarter = self.width // 4
        found = {
            "West": replace(self, x=self.x - half),
            "East": replace(self, x=self.x + half),
            "North": replace(self, y=self.y - half),
            "South": replace(self, y=self.y + half),
            "Zoom in": Window(self.x + quarter, self.y + quarter, self.zoom + 1),
            "Zoom out": Window(self.x - half, self.y - half, self.zoom - 1),
        }
        shown = {words: window.inside() for words, window in found.items()}
        return {words: window for words, window in shown.items() if window != self}


def extent(town: Streets) -> tuple[float, float]:
    """Return the width and height of a town in metres, with the edge around it."""
    return max(x for x, _ in town.points) + EDGE, max(y for _, y in town.points) + EDGE


def shows(town: Streets, window: Window, spot: int) -> bool:
    """Return whether a place lies in a window, not at its very edge."""
    width, height = extent(town)
    x, y = town.points[town.spots[spot - 1].node]
    left, top = window.x * width / STEPS, window.y * height / STEPS
    across, down = window.width * width / STEPS, window.width * height / STEPS
    return 0.1 < (x - left) / across < 0.9 and 0.1 < (y - top) / down < 0.9


def picture(town: Streets, window: Window) -> str:
    """Return a window as SVG: park, river, streets with their names, and numbered places."""
    width, height = extent(town)
    left, top = window.x * width / STEPS, window.y * height / STEPS
    across, down = window.width * width / STEPS, window.width * height / STEPS
    unit = across / SIZE[0]  # metres of a pixel
    shapes = [
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{across:.0f}" height="{down:.0f}" '
        'fill="#f4f1ea"/>',
        _park(town),
        _river(town, width),
    ]
    for one, other in sorted(town.streets):
        (x1, y1), (x2, y2) = town.points[one], town.points[other]
        path = (one, other) in town.paths
        colour, thick = ("#7a9b6a", 2) if path else ("#ffffff", 7)
        dashes = f' stroke-dasharray="{6 * unit:.1f}"' if path else ""
        ends = f'x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"'
        if not path:
            shapes.append(f'<line {ends} stroke="#b9b2a3" stroke-width="{9 * unit:.1f}"/>')
        shapes.append(f'<line {ends} stroke="{colour}" stroke-width="{thick * unit:.1f}"{dashes}/>')
    shapes += _names(town, unit)
    for spot in town.spots:
        x, y = town.points[spot.node]
        shapes.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{9 * unit:.1f}" fill="#a3242f"/>')
        shapes.append(_text(x, y + 3.5 * unit, str(spot.id), 10 * unit, "#ffffff"))
    box = f"{left:.1f} {top:.1f} {across:.1f} {down:.1f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{SIZE[0]}" '
        f'height="{SIZE[1]}" preserveAspectRatio="none">{"".join(shapes)}</svg>'
    )


def _park(town: Streets) -> str:
    left, top, right, bottom = town.park
    corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
    points = (town.points[row * COLUMNS + column] for row, column in corners)
    shown = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    return f'<polygon points="{shown}" fill="#cfe5c0"/>'


def _river(town: Streets, width: float) -> str:
    above = range(town.river * COLUMNS, (town.river + 1) * COLUMNS)
    points = [
        ((town.points[node][0]), (town.points[node][1] + town.points[node + COLUMNS][1]) / 2)
        for node in above
    ]
    points = [(0.0, points[0][1]), *points, (width, points[-1][1])]
    shown = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    return f'<polyline points="{shown}" fill="none" stroke="#9cc4e4" stroke-width="26"/>'


def _names(town: Streets, unit: float) -> list[str]:
    """Return the name of each street once, beside its first part."""
    seen, found = set(), []
    for (one, other), name in sorted(town.streets.items()):
        if name in seen:
            continue
        seen.add(name)
        (x1, y1), (x2, y2) = town.points[one], town.points[other]
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        turn = f' transform="rotate(90 {x:.0f} {y:.0f})"' if other - one == COLUMNS else ""
        found.append(_text(x, y - 6 * unit, name, 11 * unit, "#4a4438", turn))
    return found


def _text(x: float, y: float, words: str, size: float, colour: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}" font-family="sans-serif" '
        f'text-anchor="middle" fill="{colour}"{more}>{escape(words)}</text>'
    )
