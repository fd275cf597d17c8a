"""Policies: rules about calls and their order, as formulas of temporal logic.

A moment of a trace is a word: a call that a service answered (`orders.return_order`), or what else
a formula may name. Formulas are progressed through each moment (`core/obligations.py`), so what is
left of them is small, and is part of an environment's state.

A rule is about names of calls. Where arguments or replies matter, a clause gives the calls that are
meant a word of their own, such as "it" for payments above 50.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from palaestra.core.obligations import BROKEN, State, fulfilled, initial, progress
from palaestra.core.temporal_logic import Moment, parse

if TYPE_CHECKING:
    from palaestra.environments.families.apps.world import Called


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a policy."""

    name: str
    words: str  # as they stand in the policy that the agent reads
    formula: str
    talk: bool = False  # it is about what is said, so it is void where nobody talks


@dataclass(frozen=True, slots=True)
class Mark:
    """Calls that are meant: of some APIs, as far as the conditions below say."""

    word: str  # their moment in the trace
    apis: frozenset[str]
    argument: str = ""  # which the next two are about
    among: frozenset[Any] | None = None  # it is one of these
    above: float | str | None = None  # it is above this number, or after this time
    replies: str = ""  # the reply's values match this pattern

    def fits(self, called: Called) -> bool:
        """Return whether a call that was answered is meant."""
        if called.api not in self.apis:
            return False
        value = called.arguments.get(self.argument)
        if self.among is not None and value not in self.among:
            return False
        if self.replies:
            replied = "\n".join(map(str, (called.body or {}).values()))
            return bool(re.search(self.replies, replied))
        return self.above is None or (value is not None and value > self.above)


@dataclass(frozen=True, slots=True)
class Clause:
    """A rule of a person's policy, with the calls that its formula names by words of their own."""

    rule: Rule
    marks: tuple[Mark, ...]

    def trace(self, calls: Iterable[Called]) -> Trace:
        """Return what the rule still requires after these calls; refused ones do not count."""
        trace = Trace([self.rule])
        for called in calls:
            if called.ok:
                words = [mark.word for mark in self.marks if mark.fits(called)]
                trace.add(words[0] if words else called.api)
        return trace


def broken(clauses: Sequence[Clause], calls: Sequence[Called]) -> tuple[str, ...]:
    """Return the names of the clauses that are broken if the episode ends after these calls."""
    return tuple(name for clause in clauses for name in clause.trace(calls).broken())


class Trace:
    """What the rules of a policy still require."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._left = {rule.name: _begun(rule.formula) for rule in rules}

    def add(self, event: str) -> None:
        """Append a moment."""
        self._left = {name: _after(left, event) for name, left in self._left.items()}

    def broken(self) -> tuple[str, ...]:
        """Return the names of the rules that are broken if the trace ends here."""
        return tuple(name for name, left in self._left.items() if not fulfilled(left))

    def forbids(self, event: str) -> bool:
        """Return whether this moment would break a rule for good that is not broken yet."""
        return any(left != BROKEN and _after(left, event) == BROKEN for left in self._left.values())

    def key(self) -> list[list[list[str]]]:
        """Return what is left of the rules, in an order that is always the same."""
        return [
            sorted(sorted(map(repr, alternative)) for alternative in left)
            for left in self._left.values()
        ]


@lru_cache(maxsize=64)
def _begun(formula: str) -> State:
    return initial(parse(formula))


@lru_cache(maxsize=4096)
def _after(left: State, event: str) -> State:
    moment = Moment("", event)
    return progress(left, lambda atom: atom.holds(moment))
