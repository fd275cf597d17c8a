"""Line charts as SVG: colours are classes of the style sheet, so they follow the colour scheme.

Values that are not finite are left out of the line, and the chart's description counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from palaestra.runtime.visible_text import visible
from palaestra.viewer.formatting import figure

COLOURS = 8  # of series, in the style sheet
MOST = 300  # points of one line; more are thinned, keeping highs and lows
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()  # x, low, high
    dots: Sequence[Point] = ()
    dashed: bool = False
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's size and axes."""

    width: int = 320
    height: int = 150
    x_label: str = ""
    y_range: tuple[float, float] | None = None
    tick: Callable[[float], str] = figure


def line_chart(series: Sequence[Series], frame: Frame, title: str) -> Markup:
    """Draw a line chart; `title` is its text alternative."""
    points = [p for s in series for p in (*s.points, *s.dots)]
    bounds = [(x, y) for s in series for x, low, high in s.band for y in (low, high)]
    whole = [(x, y) for x, y in (*points, *bounds) if math.isfinite(x) and math.isfinite(y)]
    left_out = len(points) + len(bounds) - len(whole)
    about = title + (f" ({left_out} values are not finite)" if left_out else "")
    size = f'viewBox="0 0 {frame.width} {frame.height}"'
    head = f'<svg class="chart" role="img" {size}><title>{_words(about)}</title>'
    if not whole:
        middle = f'x="{frame.width / 2}" y="{frame.height / 2}" text-anchor="middle"'
        return Markup(f"{head}<text {middle}>not recorded</text></svg>")
    xs = min(x for x, _ in whole), max(x for x, _ in whole)
    ys = frame.y_range or _padded(min(y for _, y in whole), max(y for _, y in whole))
    scale = _Scale(frame, xs, ys)
    parts = [head, *_axes(scale)]
    for line in series:
        parts += _line(line, scale)
    return Markup("".join((*parts, "</svg>")))


def bar(parts: Sequence[tuple[str, float]], title: str, width: int = 640) -> Markup:
    """Draw shares of a whole as one bar, in order; the page adds the legend."""
    total = sum(value for _, value in parts) or 1.0
    shapes, start = [], 0.0
    for index, (name, value) in enumerate(parts):
        long = width * value / total
        shapes.append(
            f'<rect class="fill s{index % COLOURS}" x="{start:.1f}" y="0" width="{long:.1f}" '
            f'height="18"><title>{_words(name)}: {100 * value / total:.0f} %</title></rect>'
        )
        start += long
    return Markup(
        f'<svg class="bar" role="img" viewBox="0 0 {width} 18" preserveAspectRatio="none">'
        f"<title>{_words(title)}</title>{''.join(shapes)}</svg>"
    )


class _Scale:
    """The mapping from values to coordinates of the picture."""

    def __init__(self, frame: Frame, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        self.frame, self.xs, self.ys = frame, xs, ys
        self.left, self.right = 52, frame.width - 8
        self.top, self.bottom = 8, frame.height - (34 if frame.x_label else 20)

    def x(self, value: float) -> float:
        span = self.xs[1] - self.xs[0]
        share = (value - self.xs[0]) / span if span else 0.5
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.ys[0]) / (self.ys[1] - self.ys[0])
        return self.bottom - min(1.0, max(0.0, share)) * (self.bottom - self.top)


def _words(text: str) -> Markup:
    """Escape a text within the picture."""
    return escape(visible(text))


def _axes(scale: _Scale) -> list[str]:
    frame, parts = scale.frame, []
    for value in _ticks(*scale.ys, 4 if frame.height < 200 else 6):
        y = scale.y(value)
        parts.append(f'<path class="grid" d="M{scale.left} {y:.1f}H{scale.right}"/>')
        parts.append(
            f'<text x="{scale.left - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_words(frame.tick(value))}</text>"
        )
    whole = [x for x in _ticks(*scale.xs, max(2, frame.width // 60)) if x == round(x)]
    for value in whole or scale.xs[:1]:
        x = scale.x(value)
        parts.append(
            f'<text x="{x:.1f}" y="{scale.bottom + 14}" text-anchor="middle">{value:g}</text>'
        )
    parts.append(f'<path class="axis" d="M{scale.left} {scale.bottom}H{scale.right}"/>')
    if frame.x_label:
        middle = (scale.left + scale.right) / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{frame.height - 4}" text-anchor="middle">'
            f"{_words(frame.x_label)}</text>"
        )
    return parts


def _line(line: Series, scale: _Scale) -> list[str]:
    colour, parts = f"s{line.colour % COLOURS}", []
    band = [(x, low, high) for x, low, high in line.band if math.isfinite(low + high)]
    if band:
        upper = [(x, high) for x, _, high in band]
        lower = [(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<path class="band {colour}" d="{_path(upper + lower, scale)}Z"/>')
    for x, y in thinned(line.dots):
        if math.isfinite(y):
            parts.append(
                f'<circle class="dot {colour}" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="2.2">'
                f"<title>{_words(line.name)} {x:g}: {figure(y)}</title></circle>"
            )
    for segment in _segments(thinned(line.points)):
        dashed = " dashed" if line.dashed else ""
        if len(segment) == 1:
            x, y = scale.x(segment[0][0]), scale.y(segment[0][1])
            parts.append(f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
        else:
            parts.append(f'<path class="line {colour}{dashed}" d="{_path(segment, scale)}"/>')
    return parts


def thinned(points: Sequence[Point]) -> list[Point]:
    """Return at most about MOST of the points: the lowest and highest of each interval."""
    if len(points) <= MOST:
        return list(points)
    interval = math.ceil(2 * len(points) / MOST)
    kept: list[Point] = []
    for start in range(0, len(points), interval):
        part = points[start : start + interval]
        finite = [p for p in part if math.isfinite(p[1])]
        if finite:
            ends = {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])}
            kept += sorted(ends)
    return kept


def _segments(points: Sequence[Point]) -> list[list[Point]]:
    """Return the segments of a line between values that are not finite."""
    found: list[list[Point]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [segment for segment in found if segment]


def _path(points: Sequence[Point], scale: _Scale) -> str:
    return "M" + "L".join(f"{scale.x(x):.1f} {scale.y(y):.1f}" for x, y in points)


def _padded(low: float, high: float) -> tuple[float, float]:
    """Return a range with a margin, never empty; it starts at zero if zero is near."""
    if low == high:
        half = abs(low) / 2 or 1.0
        return (low - half, high + half) if low else (0.0, 1.0)
    margin = (high - low) * 0.06
    bottom = 0.0 if 0 <= low < (high - low) else low - margin
    return bottom, high + margin


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Return roughly `about` round numbers between two values."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    rough = span / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
