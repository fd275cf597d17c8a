"""The rows that a step changed, for whoever looks at an episode beside the conversation."""

from __future__ import annotations

from typing import Any

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World


class ShownChanges:
    """What changed since it was last asked for, of what a person may read: nothing of others."""

    def __init__(self, world: World, person: int) -> None:
        self._world = world
        self._caller = Caller(world.state, world.suite.blueprints, person, world.now)
        self._email = self._caller.email()
        self._key, self._seen = world.state.key(), self._changed()

    def since(self) -> dict[str, Any]:
        """Return the world's time (`clock`), and the rows that changed (`rows`) if there are any.

        A row has its table, its id, and the columns that changed (`before`, `after`): None where it
        was not or no longer is.
        """
        clock, key = {"clock": self._world.now}, self._world.state.key()
        if key == self._key:
            return clock
        old, self._key, self._seen = self._seen, key, self._changed()
        rows = []
        for table, id in {**old, **self._seen}:
            at = (table, id)
            before = old[at][1] if at in old else self._seen[at][0]
            after = self._seen[at][1] if at in self._seen else old[at][0]  # as at the beginning
            if before != after and self._may_read(table, before or after or {}):
                rows.append({"table": table, "id": id, **_columns(before, after)})
        return clock | ({"rows": rows} if rows else {})

    def _changed(self) -> dict[tuple[str, int], tuple[Row | None, Row | None]]:
        """Return each row that differs from the beginning: as it was then, and as it is."""
        changes = self._world.state.changes()
        return {(made.table, made.id): (made.before, made.after) for made in changes}

    def _may_read(self, table: str, row: Row) -> bool:
        app, _, name = table.partition(".")
        entity = self._caller.blueprints[app].entities[name]
        mine = (self._caller.person, self._email)
        return entity.public or any(row[f] in mine for f in (entity.owner, *entity.readers) if f)


def _columns(before: Row | None, after: Row | None) -> dict[str, Row | None]:
    """Return the columns of a row that differ; all, without the id, of one that came or went."""
    old, new = before or {}, after or {}
    names = [n for n in {**old, **new} if n != "id" and (n not in old or old[n] != new.get(n))]
    return {
        "before": None if before is None else {name: old[name] for name in names},
        "after": None if after is None else {name: new[name] for name in names},
    }
