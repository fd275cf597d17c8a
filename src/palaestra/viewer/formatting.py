"""Formats of numbers, times and names on pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.player_results import PlayerScore
from palaestra.runtime.visible_text import visible

NOTHING = "–"


def percent(share: float | None) -> str:
    """Format a share of one, e.g. "37.5 %"."""
    return NOTHING if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def bounds(found: Interval | None) -> str:
    """Format the bounds of an interval of shares, e.g. "31.2 to 44.0"."""
    return NOTHING if found is None else f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def count(number: float | None) -> str:
    """Format a count, e.g. "1,234" or "2.35 M"."""
    if number is None or not math.isfinite(number):
        return NOTHING
    if abs(number) < 100_000:
        return f"{number:,.0f}"
    return f"{number / 1e6:.2f} M" if abs(number) >= 1e6 else f"{number / 1e3:.0f} k"


def figure(number: float | None) -> str:
    """Format a measured number, to four digits."""
    if number is None:
        return NOTHING
    if not math.isfinite(number):
        return str(number)
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def seconds(number: float | None) -> str:
    """Format a duration, e.g. "4.2 s" or "3 min 07 s"."""
    if number is None or not math.isfinite(number):
        return NOTHING
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def memory(number: float | None) -> str:
    """Format bytes, e.g. "0.67 GB"."""
    return f"{number / 1e9:.2f} GB" if number else NOTHING


def money(number: float | None) -> str:
    """Format a cost, in the currency of the given prices."""
    if number is None:
        return NOTHING
    return f"{number:.4f}" if 0 < number < 0.1 else f"{number:.2f}"


def moment(time: datetime) -> str:
    """Format a time, e.g. "2026-01-31 09:05 UTC"."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def value(found: Any) -> str:
    """Format a value of a recipe, similar to TOML."""
    if found is None:
        return NOTHING
    return str(found).lower() if isinstance(found, bool) else str(found)


def returns(players: Mapping[str, PlayerScore]) -> str:
    """Format the mean return of each player, e.g. "white +0.50, black -0.50"."""
    return visible(player_results.line(players)) or NOTHING


def cut(text: str, most: int = 160) -> str:
    """Shorten `text` to one line of at most `most` characters."""
    line = " ".join(visible(text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"


def short(name: str, most: int = 28) -> str:
    """Shorten a name or path to its end, which is the distinctive part."""
    line = " ".join(visible(name[-4 * most :]).split())
    return (line if len(line) <= most else "…" + line[1 - most :]) or NOTHING


WRITERS: tuple[Callable[..., str], ...] = (
    *(percent, bounds, count, figure, seconds, memory, money, moment, value, returns, cut, short),
)
FILTERS = {writer.__name__: writer for writer in WRITERS}
"""The filters by their names in templates."""
