"""Goals that a task states, and that any episode may reach: what hindsight relabelling reads.

Source: goal-conditioned RL with a map from states to the goals that they achieve (Schaul et al.
2015; Andrychowicz et al. 2017). An environment states its goal in the first line of each
observation (`with_goal`), and each transition's `info[ACHIEVED]` is the goal that the new state
achieves, in the same words; it is missing where that state achieves none that a task could state.
"""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

ACHIEVED = "achieved_goal"
"""The key of a transition's `info`, as in Gymnasium-Robotics."""

_STATED = re.compile(r"^Goal: [^\n]+\.$\n?", re.MULTILINE)


@runtime_checkable
class GoalConditioned(Protocol):
    """An environment whose tasks state goals."""

    def achieved_goal(self) -> str | None:
        """Return the goal that the present state achieves, as tasks state it; None: none."""
        ...


def with_goal(text: str, goal: str) -> str:
    """Return a text that states the goal in its first line."""
    return f"Goal: {goal}.\n{text}"


def without_goal(text: str) -> str:
    """Return a text without the goals that it states."""
    return _STATED.sub("", text)


def states_goal(text: str) -> bool:
    """Return whether a text states a goal."""
    return _STATED.search(text) is not None


def restated(text: str, goal: str) -> str:
    """Return a text that states this goal wherever it stated one; unchanged if it stated none."""
    return _STATED.sub(lambda found: f"Goal: {goal}." + "\n" * found[0].endswith("\n"), text)
