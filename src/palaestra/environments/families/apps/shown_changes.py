"""The rows that a step changed, for the record of the episode and its viewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.office_formats import lines_of
from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.apps.world import World


class ShownChanges:
    """The changes since the last call of `take`, of rows that a person may read."""

    def __init__(self, world: World, person: int) -> None:
        """Begin with the present state."""
        self._world = world
        self._caller = Caller(world.state, world.suite.blueprints, person, world.now)
        self._email = self._caller.email()
        self._written: list[Change] = []
        world.state.watched = self._written

    def take(self) -> dict[str, Any]:
        """Return the world's time (`clock`), and the rows that changed (`rows`) if there are any.

        A row has its table, its id, and the columns that changed (`before`, `after`): None where it
        was not or no longer is.
        """
        clock = {"clock": self._world.now}
        if not self._written:
            return clock
        touched: dict[tuple[str, int], Change] = {}
        for made in self._written:
            first = touched.get((made.table, made.id), made)
            touched[made.table, made.id] = replace(made, before=first.before)
        self._written.clear()
        rows = [
            {"table": made.table, "id": made.id, **self._columns(made)}
            for made in touched.values()
            if made.before != made.after and self._may_read(made)
        ]
        return clock | ({"rows": rows} if rows else {})

    def _may_read(self, made: Change) -> bool:
        app, _, name = made.table.partition(".")
        row = made.before or made.after or {}
        entity = self._caller.blueprints[app].entities[name]
        mine = (self._caller.person, self._email)
        return entity.public or any(row[f] in mine for f in (entity.owner, *entity.readers) if f)

    def _columns(self, made: Change) -> dict[str, Row | None]:
        """Return the columns of a row that differ; all, without the id, if it came or went."""
        old, new = made.before or {}, made.after or {}
        names = [n for n in {**old, **new} if n != "id" and (n not in old or old[n] != new.get(n))]
        return {
            "before": None if made.before is None else self._readable(made.table, old, names),
            "after": None if made.after is None else self._readable(made.table, new, names),
        }

    def _readable(self, table: str, row: Row, names: Sequence[str]) -> Row:
        """Return columns of a row, with the lines of documents in place of their bytes."""
        columns = self._world.state.columns[table]
        return {
            name: lines_of(row[name])
            if columns[name].type == "document" and row[name]
            else row[name]
            for name in names
        }
