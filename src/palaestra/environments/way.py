"""The way that an oracle has named, for as long as somebody follows it.

A planner that is asked anew at every step knows less of what it saw than it did on the way, and may
lead back and forth for ever: the bot of BabyAI does where it has to explore. Whoever follows a way
is told the rest of it; whoever leaves it is told another.
"""

from __future__ import annotations

from collections.abc import Callable

from palaestra.core.environment import Action


class Way:
    """What is left of it."""

    def __init__(self) -> None:
        self._left: list[Action] = []

    def taken(self, action: Action) -> None:
        """An action was taken, on the way or off it."""
        on_it = bool(self._left) and action.text.strip() == self._left[0].text
        self._left = self._left[1:] if on_it else []

    def forget(self) -> None:
        """The world is another, or in another state."""
        self._left = []

    def rest(self, find: Callable[[], list[Action]]) -> list[Action]:
        """From here to the end; a new one, by `find`, where none is being followed."""
        if not self._left:
            self._left = find()
        return list(self._left)
