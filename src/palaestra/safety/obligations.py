"""Obligations: what a formula still asks of the moments to come, kept up to date as they come.

A formula is progressed through each moment to what the rest of the trace must satisfy (Bacchus and
Kabanza 1998). What is left is held as alternatives, each a set of formulas that must all hold from
the next moment on: there are finitely many, so they are the states of an automaton, which is built
as far as it is walked. From it follows how soon a state can be fulfilled, and thus which actions
leave a formula that can still be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TypeAlias

from palaestra.core.errors import InputError
from palaestra.safety.temporal_logic import (
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
"""Alternatives; one of them must be fulfilled. None: it is too late. An empty one: all is done."""

DONE: State = frozenset([frozenset()])
BROKEN: State = frozenset()
SOME, NONE = Until(TRUE, TRUE), Release(FALSE, FALSE)  # there is a next moment; there is none
MOST_SEEN = 6  # properties of observations in one formula: any subset of them may come
Properties: TypeAlias = frozenset[Atom]  # those that a moment has


def begun(formula: Formula) -> State:
    """The obligations of a trace that has not begun."""
    match formula:
        case Truth(value):
            return DONE if value else BROKEN
        case And(left, right):
            return _both(begun(left), begun(right))
        case Or(left, right):
            return _either(begun(left), begun(right))
        case _:
            return frozenset([frozenset([formula])])


def progressed(state: State, has: Callable[[Atom], bool]) -> State:
    """What is left after one more moment, which has those properties."""
    found = BROKEN
    for alternative in state:
        left = DONE
        for formula in alternative:
            left = _both(left, _after(formula, has))
        found = _either(found, left)
    return found


def fulfilled(state: State) -> bool:
    """Whether the trace may end here."""
    return any(all(_empty(formula) for formula in alternative) for alternative in state)


class Monitor:
    """Follows one trace, and knows which actions leave a formula that can be fulfilled."""

    def __init__(self, formula: Formula) -> None:
        """At the beginning of a trace.

        Raises:
            InputError: the formula has too many properties of observations, or no trace fulfils it.
        """
        self.state = begun(formula)
        named = dict.fromkeys(_positive(atom) for atom in atoms(formula))
        self._of_action = [atom for atom in named if not atom.of_seen]
        of_seen = [atom for atom in named if atom.of_seen]
        if len(of_seen) > MOST_SEEN:
            raise InputError(
                f"The formula has {len(of_seen)} properties of what is seen, and at most "
                f"{MOST_SEEN} can be followed at once; use fewer, or patterns that join them."
            )
        self._sights = [
            frozenset(atom for atom, on in zip(of_seen, chosen, strict=True) if on)
            for chosen in product((False, True), repeat=len(of_seen))
        ]
        texts = [atom.text for atom in self._of_action if not atom.pattern]
        # actions that may be possible some day: those that are named, one that fits each pattern,
        # and one that has no property at all
        self._acts: set[Properties] = {frozenset(), *(self._properties(text) for text in texts)}
        self._acts |= {frozenset([atom]) for atom in self._of_action if atom.pattern}
        self._distances: dict[State, int | None] = {}
        if self.distance(self.state) is None:
            raise InputError("No behaviour can satisfy the formula: it contradicts itself.")

    def allowed(self, seen: str, actions: Iterable[str], left: int | None) -> list[str]:
        """The actions after which the formula can be fulfilled within the actions then left.

        Args:
            seen: the present observation.
            actions: what could be done now; what may be possible later is guessed generously.
            left: how many actions may be taken, this one included; None: any number.
        """
        actions = list(actions)
        self._learn(actions)
        return [action for action in actions if self._in_time(Moment(seen, action), left)]

    def take(self, moment: Moment) -> None:
        """The trace goes on by one moment."""
        self.state = progressed(self.state, lambda atom: atom.holds(moment))

    def distance(self, state: State) -> int | None:
        """The fewest further moments that fulfil a state; None: no number of them does."""
        if state not in self._distances:
            self._distances[state] = self._search(state)
        return self._distances[state]

    def _in_time(self, moment: Moment, left: int | None) -> bool:
        after = progressed(self.state, lambda atom: atom.holds(moment))
        distance = self.distance(after)
        return distance is not None and (left is None or distance < left)

    def _search(self, state: State) -> int | None:
        seen, edge, steps = {state}, [state], 0
        letters = [act | sight for act in self._acts for sight in self._sights]
        while edge:
            if any(fulfilled(found) for found in edge):
                return steps
            reached = {progressed(s, _in(letter)) for s in edge for letter in letters} - seen
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
    """What a formula asks of the rest, once its first moment is known."""
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
            return _both(begun(then), begun(SOME)) if must else _either(begun(then), begun(NONE))
        case Until(left, right):
            again = _both(_after(left, has), begun(formula))
            return _either(_after(right, has), again)
        case Release(left, right):
            again = _either(_after(left, has), begun(formula))
            return _both(_after(right, has), again)


def _empty(formula: Formula) -> bool:
    """Whether a trace without moments satisfies it."""
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
    """Without alternatives that ask for more than another one does."""
    return frozenset(x for x in state if not any(y < x for y in state))
