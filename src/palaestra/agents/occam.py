"""AgentOccam: observations and actions brought closer to what language models know.

Source: Yang et al. 2024, "AgentOccam: A Simple Yet Strong Baseline for LLM-Based Web Agents".
Observations are compacted: blank lines go, repeated ones are counted, and of earlier observations
only the last line stays. The past is a tree of plans: the model opens a sub-plan with `Branch`,
gives one up and goes back with `Prune`, keeps facts with `Note`; of the past, the prompt shows
nothing but the steps of the plan that it is in.
These words may stand beside an action or alone; after two replies in a row without an action, the
words go to the world. Of web pages' accessibility trees nothing is here: worlds are text.
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

PLANNING = 2  # replies in a row that may only plan
FORMAT = (
    "Reply with lines of these forms; all but the last one may be left out:\n"
    "Note: a fact to be kept\n"
    "Branch: a sub-plan to begin now\n"
    "Prune: the number of the plan to go back to, as this one is done or has failed\n"
    "Action: one action"
)
_WORDS = re.compile(r"^\s*(Note|Branch|Prune):[ \t]*(\S.*)$", re.MULTILINE)


@dataclass
class Plan:
    """A node of the tree."""

    text: str
    parent: int | None
    state: str = ""  # or: pruned
    steps: list[str] = field(default_factory=list)  # what was seen and done in it


@dataclass
class Desk:
    """What the model has made of the past."""

    plans: list[Plan]
    active: int = 0
    notes: list[str] = field(default_factory=list)

    def take_up(self, reply: str) -> None:
        """Do what the planning words of a reply say; what makes no sense is left out."""
        for word, rest in _WORDS.findall(reply):
            if word == "Note":
                self.notes.append(rest.strip())
            elif word == "Branch":
                self.plans.append(Plan(rest.strip(), self.active))
                self.active = len(self.plans) - 1
            elif found := re.search(r"\d{1,4}", rest):
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
        """Plans, notes, and the last steps of the active plan."""
        lines = ["Plans:"]
        for number, plan in enumerate(self.plans):
            active = ", active" if number == self.active else plan.state
            above = "" if plan.parent is None else f", of {plan.parent}"
            lines.append(f"{number}. {plan.text}{above}{active}")
        lines += ["Notes:", *self.notes] if self.notes else []
        steps = self.plans[self.active].steps
        return "\n".join([*lines, "Steps:", *steps[max(0, len(steps) - most) :]])


class OccamAgent(Agent):
    """AgentOccam: compact observations, and a tree of plans that says which past is shown."""

    name = "occam"

    def __init__(self, *, steps: Annotated[int, Field(ge=0)] = 12) -> None:
        """Of the active plan, the last `steps` steps are shown."""
        self.steps = steps

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = compact(session.observation.text)
        desk, only_planned = Desk([Plan("solve the task", None)]), 0
        first = f"At the start:\n{seen}"
        head = system(f"{session.instructions}\n{FORMAT}")
        while not session.over:
            now = f"{first}\n\n{desk.shown(self.steps)}\n\nNow:\n{seen}"
            reply = await session.generate([head, user(now)])
            desk.take_up(reply.text)
            if "Action:" not in reply.text and _WORDS.search(reply.text):
                only_planned += 1
                if only_planned < PLANNING:
                    continue
            only_planned, action = 0, action_of(reply.text)
            desk.plans[desk.active].steps.append(f"{pivotal(seen)} > {action}")
            transition = await session.act(action, by=reply)
            seen = compact(transition.observation.text)

    def phrase(self, action: Action) -> str:
        return f"Action: {action.text}"


def compact(text: str) -> str:
    """An observation without blank lines; a line that comes many times in a row is counted."""
    runs = [(line, len(list(run))) for line, run in groupby(text.split("\n")) if line.strip()]
    return "\n".join(f"{line} (x{n})" if n > 2 else "\n".join([line] * n) for line, n in runs)


def pivotal(seen: str, length: int = 120) -> str:
    """What is kept of an observation later: its last line, which tells what is new."""
    last = seen.rpartition("\n")[2].strip()
    return last if len(last) <= length else last[: length - 2] + " …"
