"""The typed graph of APIs: which answers fit which arguments.

A value has a type as of a field: `email`, `money`, or the id of a table. An API answers rows of a
table, whose fields have types; an argument has the type of the field of its name. An edge leads
from a field that an API answers to an argument that takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.compiler.blueprint import qualified

READS = ("list", "search", "show")


class Edge(NamedTuple):
    """A field of what one API answers, and an argument of another that takes it."""

    reads: str  # `app.name`
    field: str
    takes: str  # `app.name`
    argument: str


@dataclass(frozen=True, slots=True)
class ApiGraph:
    suite: Suite

    def table(self, api: Api) -> str:
        """Return the table whose rows an API answers; empty for a verb."""
        way, _, noun = api.name.partition("_")
        for name in self.suite.blueprints[api.app].entities:
            if way in (*READS, "create", "update") and noun in (name, f"{name}s"):
                return f"{api.app}.{name}"
        return ""

    def fields(self, table: str) -> dict[str, str]:
        """Return the types of a table's fields."""
        app, _, name = table.partition(".")
        entity = self.suite.blueprints[app].entities[name]
        return {"id": f"id of {table}"} | {
            field: f"id of {qualified(app, column.refers)}" if column.refers else column.type
            for field, column in entity.fields.items()
            if field != entity.owner
        }

    def argument(self, api: Api, name: str) -> str:
        """Return the type of an argument; empty if no field has its name."""
        entities = self.suite.blueprints[api.app].entities
        if name.endswith("_id") and name.removesuffix("_id") in entities:
            return f"id of {api.app}.{name.removesuffix('_id')}"
        own = self.table(api)
        for table in (own, *(f"{api.app}.{each}" for each in entities)):
            if table and name in (fields := self.fields(table)):
                return fields[name]
        return ""

    def reads(self, table: str) -> list[Api]:
        """Return the APIs that answer rows of a table and change nothing."""
        found = [api for api in self.suite.apis.values() if not api.changes]
        return [api for api in found if self.table(api) == table]

    def edges(self) -> Iterator[Edge]:
        """Yield what composes."""
        for read in self.suite.apis.values():
            if read.changes or not (table := self.table(read)):
                continue
            for field, kind in self.fields(table).items():
                for name, api in self.suite.apis.items():
                    for argument in api.parameters["properties"]:
                        if self.argument(api, argument) == kind:
                            yield Edge(read.full_name, field, name, argument)
