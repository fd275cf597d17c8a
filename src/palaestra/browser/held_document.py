"""A document that begins again for the next task, without being loaded: time and chance go back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.browser.tab import KEY, Tab

MOST = 50  # times that it begins again, so that what its scripts leave behind has an end

HOLD = (
    "(clock => !clock || clock.pending ? false : (clock.hold(%s), true))"
    f"(window[Symbol.for({KEY!r})])"
)
"""Holds the document; to be filled in with the program that begins a task in it."""


@dataclass(slots=True)
class HeldDocument:
    """A document that can begin again."""

    tab: Tab
    loads: int  # of the tab, when it was held
    now: float  # the world's time, then
    begun: int = 0  # how often it began again

    def can_begin(self, tabs: Sequence[Tab]) -> bool:
        """Return whether it is still there, in the only tab without a dialog, and not worn out."""
        (first, *others) = tabs
        there = first is self.tab and first.loads == self.loads and not (others or first.dialog)
        return there and self.begun < MOST
