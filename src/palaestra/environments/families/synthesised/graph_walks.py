"""Goals that walk the typed graph of APIs: a search, and then from row to row by what each answers.

A walk follows the graph's edges: a field of what one API answers is the argument of the next. The
whole walk counts as one abstract tool, "the painter of the painting of the frame", and the request
is written for that tool, not call by call (FunReason-MT, Xu et al. 2025). Ours: walks are searched
for in the graph of the apps (`composing/api_graph.py`), and the gate runs each of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import Entity
from palaestra.environments.families.apps.composing.api_graph import ApiGraph
from palaestra.environments.families.apps.composing.crud_atoms import LookUp, crud_atoms
from palaestra.environments.families.apps.composing.goal import Atom, Slots, Steps, call, findable
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World


@dataclass(frozen=True, slots=True)
class Hop:
    """An edge: the field of a row that is the argument of the API that shows the next one."""

    field: str
    shows: str  # `app.show_noun`
    argument: str
    table: str  # of the row that it shows


@dataclass(frozen=True, slots=True)
class Walk(Atom):
    """To look up a field at the end of a walk."""

    name: ClassVar[str] = "walk"
    answers: ClassVar[bool] = True
    words: ClassVar[tuple[str, ...]] = (
        "What is the {words} of {way}?",
        "Tell me the {words} of {way}.",
    )
    first: LookUp  # of the entity that is searched
    hops: tuple[Hop, ...]
    last: Entity  # at the end

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({self.first.app, *(hop.table.partition(".")[0] for hop in self.hops)})

    @property
    def table(self) -> str:
        """The tables on the way, by which a walk is known."""
        return " ".join([self.first.table, *(hop.table for hop in self.hops)])

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        fields = [
            name
            for name, column in self.last.fields.items()
            if column.type not in ("person", "boolean") and not column.refers and not column.free
        ]
        ends = self._ends(world)
        if not fields or not ends:
            return None
        title, field = rng.choice(sorted(ends)), rng.choice(fields)
        if ends[title][field] in (None, ""):
            return None
        nouns = [hop.table.partition(".")[2].replace("_", " ") for hop in reversed(self.hops)]
        first = f"the {self.first.noun.replace('_', ' ')} '{title}'"
        way = " of ".join([*(f"the {noun}" for noun in nouns), first])
        return {"title": title, "field": field, "words": field.replace("_", " "), "way": way}

    def steps(self, slots: Slots) -> Steps:
        found = yield call(f"{self.first.app}.search_{self.first.noun}s", query=slots["title"])
        row = found[f"{self.first.noun}s"][0]
        for hop in self.hops:
            row = yield call(hop.shows, **{hop.argument: row[hop.field]})
        return row[slots["field"]]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        ends, field = self._ends(world), slots["field"]
        right = ends[slots["title"]][field]
        others = [title for title, row in sorted(ends.items()) if row[field] not in (right, None)]
        return [{**slots, "title": title} for title in others[:3]]

    def _ends(self, world: World) -> Mapping[str, Row]:
        """Return the rows to which walks lead, by the title of the first row."""
        found: dict[str, Any] = {}
        for first in findable(world, self.first.table, self.first.title):
            row: Row | None = first
            for hop in self.hops:
                row = world.state.get(hop.table, row[hop.field]) if row else None
            if row:
                found[str(first[self.first.title])] = row
        return found


def walks(suite: Suite, longest: int) -> Iterator[Walk]:
    """Yield the walks over at most `longest` hops, none of which meets a table twice."""
    graph = ApiGraph(suite)
    hops: dict[str, list[Hop]] = {}
    for edge in graph.edges():
        shown = suite.apis[edge.takes]
        target = graph.table(shown)
        reads = graph.table(suite.apis[edge.reads])
        leads = edge.field != "id" and edge.argument == f"{target.partition('.')[2]}_id"
        if leads and shown.name.startswith("show_"):
            hop = Hop(edge.field, edge.takes, edge.argument, target)
            if hop not in hops.setdefault(reads, []):
                hops[reads].append(hop)
    for atom in crud_atoms(suite):
        if isinstance(atom, LookUp) and atom.app != "supervisor":
            yield from _from(atom, (), suite, hops, longest)


def _from(
    first: LookUp,
    done: tuple[Hop, ...],
    suite: Suite,
    hops: Mapping[str, Sequence[Hop]],
    longest: int,
) -> Iterator[Walk]:
    """Yield the walks that begin with these hops, themselves included."""
    at = done[-1].table if done else first.table
    if done:
        app, _, name = at.partition(".")
        yield Walk(first, done, suite.blueprints[app].entities[name])
    if len(done) < longest:
        met = {first.table, *(hop.table for hop in done)}
        for hop in hops.get(at, ()):
            if hop.table not in met:
                yield from _from(first, (*done, hop), suite, hops, longest)
