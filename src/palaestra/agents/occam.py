"""AgentOccam: observations and actions in a form that language models know well.

Source: Yang et al. 2024, "AgentOccam: A Simple Yet Strong Baseline for LLM-Based Web Agents".
Observations are compacted: blank lines are removed, repeated lines are counted, and earlier
observations are reduced to their last line. The history is a tree of plans: the model opens a
sub-plan with `Branch`, abandons one and goes back with `Prune`, and keeps facts with `Note`. The
prompt shows only the steps of the active plan.
These commands may accompany an action or stand alone. After two replies in a row without an
action, the reply itself is the action. The paper's accessibility trees of web pages are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated

from pydantic import Field

from palaestra.agents.react import action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import system, user
from palaestra.core.session import Session

PLANNING = 2  # of this many replies in a row without an action, the last is taken as one
FORMAT = (
    "Reply with lines of these forms; all but the last one may be left out:\n"
    "Note: a fact to be kept\n"
    "Branch: a sub-plan to begin now\n"
    "Prune: the number of the plan to go back to, as this one is done or has failed\n"
    "Action: one action"
)
_COMMANDS = re.compile(r"^\s*(Note|Branch|Prune):[ \t]*(\S.*)$", re.MULTILINE)


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

    def apply(self, reply: str) -> None:
        """Execute the planning commands of a reply; ignore invalid ones."""
        for command, argument in _COMMANDS.findall(reply):
            if command == "Note":
                self.notes.append(argument.strip())
            elif command == "Branch":
                self.plans.append(Plan(argument.strip(), self.active))
                self.active = len(self.plans) - 1
            elif found := re.search(r"\d{1,4}", argument):
                self._go_back(int(found[0]))

    def _go_back(self, to: int) -> None:
        above, node = [], self.plans[self.active].parent
        while node is not None:
            above.append(node)
            node = self.plans[node].parent
        if to in above:
            self.plans[self.active].state = ", pruned"
            self.active = to

    def shown(self, most: int) -> str:
        """Format the plans, the notes and the last `most` steps of the active plan."""
        lines = ["Plans:"]
        for number, plan in enumerate(self.plans):
            active = ", active" if number == self.active else plan.state
            above = "" if plan.parent is None else f", of {plan.parent}"
            lines.append(f"{number}. {plan.text}{above}{active}")
        lines += ["Notes:", *self.notes] if self.notes else []
        steps = self.plans[self.active].steps
        return "\n".join([*lines, "Steps:", *steps[max(0, len(steps) - most) :]])


class OccamAgent(Agent):
    """AgentOccam: compact observations, and a tree of plans that selects the steps shown."""

    name = "occam"

    def __init__(self, *, steps: Annotated[int, Field(ge=0)] = 12) -> None:
        """Show the last `steps` steps of the active plan."""
        self.steps = steps

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = compact(session.observation.text)
        tree, only_planned = PlanTree([Plan("solve the task", None)]), 0
        first = f"At the start:\n{seen}"
        head = system(f"{session.instructions}\n{FORMAT}")
        while not session.over:
            now = f"{first}\n\n{tree.shown(self.steps)}\n\nNow:\n{seen}"
            reply = await session.generate([head, user(now)])
            tree.apply(reply.text)
            if "Action:" not in reply.text and _COMMANDS.search(reply.text):
                only_planned += 1
                if only_planned < PLANNING:
                    continue
            only_planned, action = 0, action_of(reply.text)
            tree.plans[tree.active].steps.append(f"{pivotal(seen)} > {action}")
            transition = await session.act(action, by=reply)
            seen = compact(transition.observation.text)

    def phrase(self, action: Action) -> str:
        return f"Action: {action.text}"


def compact(text: str) -> str:
    """Return an observation without blank lines; a line repeated in a row is counted."""
    runs = [(line, len(list(run))) for line, run in groupby(text.split("\n")) if line.strip()]
    return "\n".join(f"{line} (x{n})" if n > 2 else "\n".join([line] * n) for line, n in runs)


def pivotal(seen: str, length: int = 120) -> str:
    """Return the part of an observation that the history keeps: its last line, cut to `length`."""
    last = seen.rpartition("\n")[2].strip()
    return last if len(last) <= length else last[: length - 2] + " …"
