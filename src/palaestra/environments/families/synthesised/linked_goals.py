"""Goals that lead from one entity to another, and so from one app to the next.

What a search finds is an argument of the call that follows (BUTTON, Chen et al. 2024: atomic tasks
composed bottom-up, each output an input of the next).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.blueprint import qualified
from palaestra.environments.families.apps.composing.crud_atoms import Add, EntityAtom, crud_atoms
from palaestra.environments.families.apps.composing.draws import another, value_for
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Gap,
    Path,
    Slots,
    Steps,
    call,
    findable,
)
from palaestra.environments.families.apps.population import CACHED
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.graph_walks import walks

LONGEST_WALK = 4  # from row to row, after the search


@dataclass(frozen=True, slots=True)
class Link:
    """A field with the id of a row that a search for its title finds."""

    field: str
    table: str
    title: str  # the field that is searched


@dataclass(frozen=True, slots=True)
class AddLinked(EntityAtom):
    """A new row that refers to others, which are named by their titles."""

    links: tuple[Link, ...]
    name: ClassVar[str] = "add linked"
    words: ClassVar[tuple[str, ...]] = (
        "Add a new {noun} for {targets}: {listed}.",
        "For {targets}, please create a {noun} with {listed}.",
        "I need a {noun} in {app} that belongs to {targets}: {listed}.",
    )

    @property
    def apps(self) -> frozenset[str]:
        return frozenset({self.app, *(link.table.partition(".")[0] for link in self.links)})

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        titles: dict[str, Any] = {}
        for link in self.links:
            rows = findable(world, link.table, link.title)
            if not rows:
                return None
            titles[link.field] = rng.choice(rows)[link.title]
        given = {
            field: value_for(world, self.table, field, rng)
            for field, column in self.entity.arguments().items()
            if not column.refers and (column.default is None or rng.random() < 0.5)
        }
        if not given or None in given.values():
            return None
        shown = [
            f"the {link.table.partition('.')[2].replace('_', ' ')} '{titles[link.field]}'"
            for link in self.links
        ]
        listed = ", ".join(
            f"{self._words(field)} '{value}'"
            if isinstance(value, str)
            else f"{self._words(field)} {str(value).lower()}"
            for field, value in given.items()
        )
        words = {"noun": self.noun.replace("_", " "), "app": self.app, "listed": listed}
        return {"given": given, "titles": titles, "targets": " and ".join(shown), **words}

    def steps(self, slots: Slots) -> Steps:
        ids = {}
        for link in self.links:
            app, _, noun = link.table.partition(".")
            found = yield call(f"{app}.search_{noun}s", query=slots["titles"][link.field])
            ids[link.field] = found[f"{noun}s"][0]["id"]
        yield self.api("create", **slots["given"], **ids)

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return Add(self.table, self.entity).gaps(slots)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        misses: list[Slots] = [
            {**slots, "titles": {**slots["titles"], link.field: row[link.title]}}
            for link in self.links
            for row in findable(world, link.table, link.title)
            if row[link.title] != slots["titles"][link.field]
        ]
        return misses[:3] + [
            {**slots, "given": {**slots["given"], field: other}}
            for field, value in slots["given"].items()
            if (other := another(world, self.table, field, value, rng)) is not None
        ]


@lru_cache(maxsize=CACHED)
def linked_atoms(suite: Suite) -> tuple[Atom, ...]:
    """Return the goals over all entities but the supervisor's; those of the last suites are kept.

    A row that refers to others is added by their titles, since a person knows no ids.
    """
    atoms = [atom for atom in crud_atoms(suite) if atom.app != "supervisor"]
    titles = {atom.table: atom.title for atom in atoms}
    found: list[Atom] = []
    for atom in atoms:
        links = tuple(
            Link(field, target, titles.get(target, ""))
            for field, column in atom.entity.arguments().items()
            if column.refers
            for target in [qualified(atom.app, column.refers)]
        )
        if not isinstance(atom, Add) or not links:
            found.append(atom)
        elif all(link.title for link in links):
            found.append(AddLinked(atom.table, atom.entity, links))
    return (*found, *walks(suite, LONGEST_WALK))
