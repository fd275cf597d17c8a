"""Policies: rules about the order of calls, as formulas of temporal logic over a conversation.

A moment of the trace is a call that a service answered (`orders.return_order`, `phone.restart`), or
`user.confirms`: the user said yes when the agent asked whether to go ahead.

Formulas are progressed through each moment (`core/obligations.py`), so what is left of them is
small, and is part of the environment's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from palaestra.core.obligations import BROKEN, State, fulfilled, initial, progress
from palaestra.core.temporal_logic import Moment, parse

CONFIRMS = "user.confirms"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a policy."""

    name: str
    words: str  # as they stand in the policy that the agent reads
    formula: str
    talk: bool = False  # it is about what is said, so it is void where nobody talks


class Trace:
    """What the rules of a policy still require of a conversation."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._left = {rule.name: _begun(rule.formula) for rule in rules}

    def add(self, event: str) -> None:
        """Append a moment."""
        self._left = {name: _after(left, event) for name, left in self._left.items()}

    def broken(self) -> tuple[str, ...]:
        """Return the names of the rules that are broken if the conversation ends here."""
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
