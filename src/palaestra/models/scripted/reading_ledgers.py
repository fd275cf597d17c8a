"""How a reader orchestrates: from what it reads in its conversation to the two ledgers.

It gives the work that the environment shows to the best suited worker, by what has to be done. In a
new plan it excludes all workers that were given this work so far; while the same work is due, it
then names the best suited of the others, and begins again with all once none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.core.bm25 import scores
from palaestra.core.message import Message
from palaestra.core.team_words import (
    DID,
    PLAN_ENTRIES,
    TURN_ENTRIES,
    entries,
    listed_worker,
    taken,
)

EXCLUDES = "not "  # the beginning of a plan, before the names of workers


@dataclass(slots=True)
class Reading:
    """What an orchestrator finds in its conversation."""

    shown: list[str] = field(default_factory=list)  # by the environment: the first line each time
    workers: dict[str, str] = field(default_factory=dict)  # the last list: skills by name
    tried: list[str] = field(default_factory=list)  # who was given the work that is due
    plan: dict[str, str] = field(default_factory=dict)  # the entries of its last one

    @property
    def stalls(self) -> bool:
        """Whether the environment showed the same twice in a row."""
        return len(self.shown) > 1 and self.shown[-1] == self.shown[-2]


def read(messages: Sequence[Message]) -> Reading:
    """Return what a conversation of an orchestrator says; the first line is its briefing."""
    found = Reading()
    for message in messages:
        if message.role == "assistant":
            _read_own(message.text, found)
        elif message.role == "user":
            _read_news(message.text.splitlines(), found)
    return found


def write_plan(found: Reading) -> str:
    """Return the ledger of the task."""
    excluded = ", ".join(found.tried)
    guesses = f"{excluded} cannot do it" if excluded else "the best suited can do it"
    plan = f"{EXCLUDES}{excluded}" if excluded else "by skills"
    return f"facts: {found.shown[-1]}\nguesses: {guesses}\nplan: {plan}"


def write_turn(found: Reading, *, stalled: bool) -> str:
    """Return the ledger of a turn; `stalled` is what it says of it."""
    work, plan = found.shown[-1], found.plan.get("plan", "")
    excluded: list[str] = []
    if plan.startswith(EXCLUDES) and found.plan.get("facts") == work:
        excluded = plan.removeprefix(EXCLUDES).split(", ")
    left = [name for name in found.workers if name not in excluded] or [*found.workers]
    rated = scores(work, [found.workers[name] for name in left])
    best = left[rated.index(max(rated))]
    by_skills = not excluded and max(rated) > 0
    said = "yes" if stalled else "no"
    return f"done: no\nstalled: {said}\nnext: {work if by_skills else f'{best}: {work}'}"


def _read_own(text: str, found: Reading) -> None:
    """Read a ledger of its own."""
    if plan := entries(text, PLAN_ENTRIES):
        found.plan = plan
    name = entries(text, TURN_ENTRIES).get("next", "").partition(":")[0]
    if name in found.workers and name not in found.tried:
        found.tried.append(name)


def _read_news(lines: Sequence[str], found: Reading) -> None:
    """Read what is new to it."""
    if not found.shown and len(lines) > 1:
        found.shown.append(lines[1])
    listed = [one for line in lines if (one := listed_worker(line)) is not None]
    found.workers = dict(listed) or found.workers
    took = [name for line in lines if (name := taken(line)) is not None]
    found.tried += [name for name in took if name not in found.tried]
    for before, line in zip(["", *lines], lines, strict=False):
        if before.startswith(DID):
            if line != found.shown[-1]:
                found.tried.clear()
            found.shown.append(line)
