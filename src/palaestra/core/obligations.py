"""Obligations: what a formula still requires of the rest of a trace, updated at each moment.

A formula is progressed through each moment to the formula that the rest of the trace must satisfy
(Bacchus and Kabanza 1998). The remainder is a disjunction of alternatives; each is a set of
formulas that must all hold from the next moment on. There are finitely many, so they are the states
of an automaton, which is built lazily. The automaton gives the distance to the nearest accepting
state, and so the actions that keep the formula satisfiable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TypeAlias

from palaestra.core.errors import InputError
from palaestra.core.temporal_logic import (
    FALSE,
    TRUE,
    And,
    Atom,
    Formula,
    Moment,
    Next,
    Or,
    Release,
    Truth,
    Until,
    atoms,
)

State: TypeAlias = frozenset[frozenset[Formula]]
"""Alternatives, one of which must be fulfilled: none left is a violation, an empty one fulfils."""

DONE: State = frozenset([frozenset()])
BROKEN: State = frozenset()
SOME, NONE = Until(TRUE, TRUE), Release(FALSE, FALSE)  # a next moment exists; no next moment exists
MAX_OBSERVED = 6  # observation atoms in one formula: the search covers all their subsets
Properties: TypeAlias = frozenset[Atom]  # atoms that are true at a moment


def initial(formula: Formula) -> State:
    """Return the obligations of a trace before its first moment."""
    match formula:
        case Truth(value):
            return DONE if value else BROKEN
        case And(left, right):
            return _both(initial(left), initial(right))
        case Or(left, right):
            return _either(initial(left), initial(right))
        case _:
            return frozenset([frozenset([formula])])


def progress(state: State, has: Callable[[Atom], bool]) -> State:
    """Return the obligations after one more moment, whose true atoms `has` decides."""
    found = BROKEN
    for alternative in state:
        left = DONE
        for formula in alternative:
            left = _both(left, _after(formula, has))
        found = _either(found, left)
    return found


def fulfilled(state: State) -> bool:
    """Return whether the trace may end here."""
    return any(all(_empty(formula) for formula in alternative) for alternative in state)


class Monitor:
    """A monitor of one trace: it computes which actions keep the formula satisfiable."""

    def __init__(self, formula: Formula) -> None:
        """Start at the beginning of a trace.

        Raises:
            InputError: the formula has too many observation atoms, or no trace satisfies it.
        """
        self.state = initial(formula)
        named = dict.fromkeys(_positive(atom) for atom in atoms(formula))
        self._of_action = [atom for atom in named if not atom.of_seen]
        of_seen = [atom for atom in named if atom.of_seen]
        if len(of_seen) > MAX_OBSERVED:
            raise InputError(
                f"The formula has {len(of_seen)} properties of observations ('seen …'), and at "
                f"most {MAX_OBSERVED} can be monitored; use fewer, or join them in one pattern."
            )
        self._sights = [
            frozenset(atom for atom, on in zip(of_seen, chosen, strict=True) if on)
            for chosen in product((False, True), repeat=len(of_seen))
        ]
        texts = [atom.text for atom in self._of_action if not atom.pattern]
        # actions that may become possible: those named, one that matches each pattern, and one
        # for which all atoms are false
        self._acts: set[Properties] = {frozenset(), *(self._properties(text) for text in texts)}
        self._acts |= {frozenset([atom]) for atom in self._of_action if atom.pattern}
        self._distances: dict[State, int | None] = {}
        if self.distance(self.state) is None:
            raise InputError(
                "The formula contradicts itself, so no behaviour satisfies it; change it."
            )

    def allowed(self, seen: str, actions: Iterable[str], left: int | None) -> list[str]:
        """Return the actions after which the formula is satisfiable in the remaining actions.

        Args:
            seen: the current observation.
            actions: those possible now; later ones are over-approximated.
            left: the remaining number of actions, this one included; None: no limit.
        """
        actions = list(actions)
        self._learn(actions)
        return [action for action in actions if self._in_time(Moment(seen, action), left)]

    def advance(self, moment: Moment) -> None:
        """Append a moment to the trace."""
        self.state = progress(self.state, lambda atom: atom.holds(moment))

    def distance(self, state: State) -> int | None:
        """Return the fewest further moments that fulfil a state; None: it cannot be fulfilled."""
        if state not in self._distances:
            self._distances[state] = self._search(state)
        return self._distances[state]

    def _in_time(self, moment: Moment, left: int | None) -> bool:
        after = progress(self.state, lambda atom: atom.holds(moment))
        distance = self.distance(after)
        return distance is not None and (left is None or distance < left)

    def _search(self, state: State) -> int | None:
        seen, edge, steps = {state}, [state], 0
        letters = [act | sight for act in self._acts for sight in self._sights]
        while edge:
            if any(fulfilled(found) for found in edge):
                return steps
            reached = {progress(s, _in(letter)) for s in edge for letter in letters} - seen
            seen |= reached
            edge, steps = list(reached), steps + 1
        return None

    def _learn(self, actions: Iterable[str]) -> None:
        known = len(self._acts)
        self._acts |= {self._properties(action) for action in actions}
        if len(self._acts) > known:
            self._distances.clear()

    def _properties(self, action: str) -> Properties:
        return frozenset(atom for atom in self._of_action if atom.fits(action))


def _in(letter: Properties) -> Callable[[Atom], bool]:
    return lambda atom: (_positive(atom) in letter) is atom.wanted


def _positive(atom: Atom) -> Atom:
    return Atom(atom.text, atom.of_seen, atom.pattern)


def _after(formula: Formula, has: Callable[[Atom], bool]) -> State:
    """Return what a formula requires of the rest of a trace, given the first moment."""
    match formula:
        case Truth(value):
            return DONE if value else BROKEN
        case Atom():
            return DONE if has(formula) else BROKEN
        case And(left, right):
            return _both(_after(left, has), _after(right, has))
        case Or(left, right):
            return _either(_after(left, has), _after(right, has))
        case Next(then, must):
            return (
                _both(initial(then), initial(SOME))
                if must
                else _either(initial(then), initial(NONE))
            )
        case Until(left, right):
            again = _both(_after(left, has), initial(formula))
            return _either(_after(right, has), again)
        case Release(left, right):
            again = _either(_after(left, has), initial(formula))
            return _both(_after(right, has), again)


def _empty(formula: Formula) -> bool:
    """Return whether the empty trace satisfies the formula."""
    match formula:
        case Truth(value):
            return value
        case Atom(wanted=wanted):
            return not wanted
        case And(left, right):
            return _empty(left) and _empty(right)
        case Or(left, right):
            return _empty(left) or _empty(right)
        case Next(must=must):
            return not must
        case Until():
            return False
        case Release():
            return True


def _either(a: State, b: State) -> State:
    return _fewest(a | b)


def _both(a: State, b: State) -> State:
    return _fewest(frozenset(x | y for x in a for y in b))


def _fewest(state: State) -> State:
    """Remove alternatives that are stricter than another one."""
    return frozenset(x for x in state if not any(y < x for y in state))
