"""The way that an oracle has named, for as long as somebody follows it.

A planner that is asked anew at every step knows less of what it saw than it did on the way, and may
lead back and forth for ever: the bot of BabyAI does where it has to explore. Whoever follows a way
is told the rest of it, at no cost; whoever leaves it is told another.
"""

from __future__ import annotations

from collections.abc import Callable

from palaestra.core.environment import Action


class Way:
    """What is left of it, in words."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def taken(self, words: str, *, idle: bool = False) -> None:
        """Something was done, on the way or off it; what is idle leads nowhere else."""
        if self._left and words.strip() == self._left[0]:
            del self._left[0]
        elif not idle:
            self._left = []

    def forget(self) -> None:
        """The world is another, or in another state."""
        self._left = []

    def rest(self, find: Callable[[], list[str]]) -> list[Action]:
        """From here to the end; a new one, by `find`, where none is being followed."""
        if not self._left:
            self._left = find()
        return [Action(words) for words in self._left]
