"""The plan that an oracle named, kept for as long as the agent follows it.

A planner that is asked again at every step has less information than it had along its own plan, and
may go back and forth for ever: the bot of BabyAI does so where it has to explore. While the agent
follows the plan, the rest of it is returned at no cost. After any other action, the planner is
asked again.
"""

from __future__ import annotations

from collections.abc import Callable

from palaestra.core.environment import Action


class OraclePlan:
    """The remaining actions of the oracle's plan, as text."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def record(self, text: str, *, idle: bool = False) -> None:
        """Advance the plan if the action follows it; else drop it, unless the action is `idle`."""
        if self._left and text.strip() == self._left[0]:
            del self._left[0]
        elif not idle:
            self._left = []

    def clear(self) -> None:
        """Drop the plan: the environment was reset or restored."""
        self._left = []

    def remaining(self, find: Callable[[], list[str]]) -> list[Action]:
        """Return the actions from here to the end; call `find` if there is no current plan."""
        if not self._left:
            self._left = find()
        return [Action(text) for text in self._left]
