"""The world beside a conversation: its clock, and the rows that a step changed.

An environment gives them in the `info` of a transition, as the apps do: `clock`, a time, and
`rows`, each a `table`, an `id`, and the columns that changed `before` and `after` (null: there was
no such row, or is none).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.viewer.texts import line

CLOCK, ROWS = "clock", "rows"
LONGEST = 160  # characters of a value
MOST = 20  # rows of a step


@dataclass(frozen=True, slots=True)
class ColumnView:
    """A column of a row that changed; an empty text where there was or is none."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RowView:
    """A row that was made, changed or deleted."""

    sign: str  # "+", "~" or "−"
    name: str  # its table and id
    columns: tuple[ColumnView, ...]


@dataclass(frozen=True, slots=True)
class WorldView:
    """What a step did to the world."""

    clock: str = ""
    rows: tuple[RowView, ...] = ()
    more: int = 0  # rows that are left out


def world_view(info: Mapping[str, Any]) -> WorldView:
    """Return what the record of a step tells; what is not of this form is left to the rest."""
    found = info.get(ROWS)
    rows = [row for row in found if _is_row(row)] if isinstance(found, list) else []
    clock = info.get(CLOCK)
    return WorldView(
        line(clock, 40) if isinstance(clock, str) else "",
        tuple(map(_row, rows[:MOST])),
        max(0, len(rows) - MOST),
    )


def without_world(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rest of the record."""
    view = world_view(info)
    shown = {CLOCK} if view.clock else set()
    return {k: v for k, v in info.items() if k not in shown | ({ROWS} if view.rows else set())}


def _is_row(row: object) -> bool:
    return isinstance(row, Mapping) and {"table", "id", "before", "after"} <= row.keys()


def _row(row: Mapping[str, Any]) -> RowView:
    before, after = row["before"], row["after"]
    old = before if isinstance(before, Mapping) else {}
    new = after if isinstance(after, Mapping) else {}
    sign = "+" if before is None else "−" if after is None else "~"
    columns = (
        ColumnView(line(name, 60), _text(old, name), _text(new, name)) for name in {**old, **new}
    )
    return RowView(sign, line(f"{row['table']} {row['id']}", 120), tuple(columns))


def _text(columns: Mapping[str, Any], name: str) -> str:
    if name not in columns:
        return ""
    return line(json.dumps(columns[name], ensure_ascii=False, default=str), LONGEST)
