"""Operators: goals made of goals, and which of them a task of each kind has.

chain    a value that one goal answers is used in another
each     something is done with every row of a kind
branch   what is found says which of two goals to do
hidden   a value stands in one of many mails
ask      a value is known to the person alone
expert   goals of all these kinds, with 30 calls and more

forbidden  rules of the person may forbid what they ask for; its tasks are twins (`twins.py`)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.branch import Branch
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.composing.deeds import deeds
from palaestra.environments.families.apps.composing.each import each_atoms
from palaestra.environments.families.apps.composing.forbidden import Forbidden
from palaestra.environments.families.apps.composing.gaps import SAID, Ask, Chain, Hidden
from palaestra.environments.families.apps.composing.goal import ANY, Atom
from palaestra.environments.families.apps.composing.sources import Source, sources
from palaestra.environments.families.apps.composing.stock_atoms import stock_atoms

OPERATORS = ("chain", "each", "branch", "hidden", "ask")
EXPERT, FORBIDDEN = "expert", "forbidden"
BESIDES = 2  # rules about something else, at most, beside the one that forbids a goal
CALLS = 30  # that the reference of an expert's task makes at least

A = TypeVar("A", bound=Atom)
Allowed = Callable[[frozenset[str]], bool]


class Structures:
    """Draws what a task is made of: operators and their goals, without their values."""

    def __init__(self, suite: Suite, about: Allowed, readable: Allowed) -> None:
        """Use some apps.

        Args:
            suite: the apps.
            about: whether a goal that changes something may concern these apps.
            readable: whether a value may be read from these apps.
        """
        self._deeds = [atom for atom in deeds(suite) if about(atom.apps)]
        self._sources = [source for source in sources(suite) if readable(source.apps)]
        self._plain = [
            atom
            for atom in (*stock_atoms(suite), *crud_atoms(suite))
            if not atom.answers and about(atom.apps)
        ]
        self._each = [atom for atom in each_atoms(suite) if about(atom.apps)]

    def draw(self, kind: str, rng: random.Random) -> Atom:
        """Draw a goal of one of `OPERATORS`, or `FORBIDDEN`."""
        if kind == "each":
            return _by_name(self._each, rng)
        if kind == "branch":
            yes, no = _by_name(self._plain, rng), _by_name(self._plain, rng)
            return Branch(_by_name(self._sources, rng), yes, no)
        if kind == FORBIDDEN:
            others = tuple(_by_name(self._plain, rng) for _ in range(BESIDES))
            return Forbidden(_by_name(self._plain, rng), others)
        deed = _by_name(self._deeds, rng)
        if kind == "chain":
            deed = _by_name([one for one in self._deeds if self._fitting(one)], rng)
            return Chain(deed, _by_name(self._fitting(deed), rng))
        return Hidden(deed) if kind == "hidden" else Ask(deed)

    def _fitting(self, deed: Atom) -> list[Source]:
        """Return the sources whose answers may fill a gap."""
        taken = deed.gap_kinds()
        wide = ANY in taken
        return [
            source
            for source in self._sources
            if taken & source.kinds() or (wide and source.kinds() & set(SAID))
        ]


def _by_name(atoms: Sequence[A], rng: random.Random) -> A:
    """Draw a kind of goal first, so that apps with many entities do not crowd out the others."""
    name = rng.choice(sorted({atom.name for atom in atoms}))
    return rng.choice([atom for atom in atoms if atom.name == name])
