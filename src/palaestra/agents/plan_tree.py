"""A tree of plans that a model grows and prunes, with the steps of each and the notes of all.

Source: Yang et al. 2024, "AgentOccam". `Branch` opens a sub-plan of the active plan, `Prune` goes
back to a plan above it, and `Note` keeps a fact. Only the steps of the active plan are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

COMMAND = re.compile(r"^\s*(Note|Keep|Branch|Prune):[ \t]*(\S.*)$", re.MULTILINE)
"""A line of a reply that is a command: its name, and what stands behind it."""


@dataclass
class Plan:
    """A node of the plan tree."""

    text: str
    parent: int | None
    state: str = ""  # or: pruned
    steps: list[str] = field(default_factory=list)  # observations and actions under it


@dataclass
class PlanTree:
    """The plans and notes that the model keeps."""

    plans: list[Plan]
    active: int = 0
    notes: list[str] = field(default_factory=list)

    def apply(self, commands: Iterable[tuple[str, str]]) -> None:
        """Execute notes, branches and prunes; ignore invalid ones, and what is about a page."""
        for command, argument in commands:
            match command:
                case "Note":
                    self.notes.append(argument.strip())
                case "Branch":
                    self.plans.append(Plan(argument.strip(), self.active))
                    self.active = len(self.plans) - 1
                case "Prune" if found := re.search(r"\d{1,4}", argument):
                    self._go_back(int(found[0]))

    def _go_back(self, to: int) -> None:
        above, node = [], self.plans[self.active].parent
        while node is not None:
            above.append(node)
            node = self.plans[node].parent
        if to in above:
            self.plans[self.active].state = ", pruned"
            self.active = to

    def shown(self, most: int, *, plans: bool = True) -> str:
        """Format the plans, unless they are not asked for, the notes and the last steps.

        Args:
            most: how many steps of the active plan are shown.
            plans: whether the plans are.
        """
        lines = ["Plans:", *map(self._line, range(len(self.plans)))] if plans else []
        lines += ["Notes:", *self.notes] if self.notes else []
        steps = self.plans[self.active].steps
        return "\n".join([*lines, "Steps:", *steps[max(0, len(steps) - most) :]])

    def _line(self, number: int) -> str:
        plan = self.plans[number]
        active = ", active" if number == self.active else plan.state
        above = "" if plan.parent is None else f", of {plan.parent}"
        return f"{number}. {plan.text}{above}{active}"
