"""Who changed what: the rows that were touched, as they would be had the agent done nothing.

Events change rows on behalf of other people (`events.py`). What they write is no deed of the agent,
and is added to what its changes are compared with:

- A row that an event makes counts as one that was always there.
- Columns that an event changes count as if they always had the new value. Of an amount of money
  that a service keeps, such as a balance, the difference counts, so that it does not matter which
  of two payments came first.
- In a row that the agent made, the values stay that the agent gave, until it writes others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.environments.families.apps.compiler.blueprint import Column

Row = dict[str, Any]
Place = tuple[str, int]  # a table, and the id of a row


@dataclass(slots=True)
class ChangeLog:
    """The log of one world."""

    before: dict[Place, Row | None] = field(default_factory=dict)
    """Each touched row without what the agent did; None: there is no such row without it."""

    replaced: dict[Place, Row] = field(default_factory=dict)
    """Of rows that the agent made: its values, where events wrote others."""

    made: dict[Place, str] = field(default_factory=dict)
    """Rows that events made, with names for them that are the same in every episode."""

    def copy(self) -> ChangeLog:
        return ChangeLog(dict(self.before), dict(self.replaced), dict(self.made))

    def note(self, place: Place, before: Row | None, after: Row | None) -> None:
        """Add what the agent wrote: a row before and after it."""
        self.before.setdefault(place, before)
        if place in self.replaced:
            old, new = before or {}, after or {}
            kept = self.replaced[place].items()
            self.replaced[place] = {k: value for k, value in kept if old.get(k) == new.get(k)}

    def note_event(
        self,
        place: Place,
        before: Row | None,
        after: Row | None,
        columns: Mapping[str, Column],
        label: str,
    ) -> None:
        """Add what an event wrote.

        Args:
            place: where.
            before: the row before it; None: it makes the row.
            after: the row after it; None: it deletes the row.
            columns: of the table.
            label: a name for the row if the event makes it.
        """
        if before is None:
            self.before[place], self.made[place] = after, label
            return
        known = self.before.get(place, before)
        if after is None:
            self.before[place] = None
            return
        new = {key: value for key, value in after.items() if before[key] != value}
        if known is None:
            old = {key: before[key] for key in new}
            self.replaced[place] = old | self.replaced.get(place, {})
            return
        for key, value in new.items():
            column = columns[key]
            if (
                column.type == "money"
                and column.by == "service"
                and None not in (value, known[key], before[key])
            ):
                new[key] = round(known[key] + value - before[key], 2)
        self.before[place] = known | new

    def saved(self) -> list[Any]:
        """Return the log as JSON can hold it."""
        parts = self.before, self.replaced, self.made
        return [[[*place, value] for place, value in part.items()] for part in parts]

    @classmethod
    def restored(cls, saved: list[Any]) -> ChangeLog:
        """Return the log that `saved` returned."""
        before, replaced, made = (
            {(table, id): value for table, id, value in part} for part in saved
        )
        return cls(before, replaced, made)
