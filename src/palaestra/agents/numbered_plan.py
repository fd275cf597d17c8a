"""Plans as numbered lines of text: how planners write them and executors parse them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from palaestra.core.model import Sampling
from palaestra.core.session import Session

MAX_STEPS = 50  # steps parsed from a plan; the planner is asked again after them
LONGER = 4  # the token limit of a plan, as a multiple of an action's
INDENT = "   "  # of a step's continuation lines
REACHED = re.compile(r"^\s*Reached:\s*yes", re.IGNORECASE | re.MULTILINE)

_NUMBER = re.compile(r"^(\s*)(?:step\s+)?\d+\s*[.):]\s*", re.IGNORECASE)
_BULLET = re.compile(r"^(\s*)[-*•]\s+")


def numbered(steps: Iterable[str]) -> str:
    """Format steps as a plan; `steps_of` parses it."""
    lines = (step.strip().replace("\n", f"\n{INDENT}") for step in steps)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def steps_of(text: str) -> list[str]:
    """Parse the steps of a plan: its numbered lines, else its bulleted ones, else all lines."""
    for mark in (_NUMBER, _BULLET):
        if steps := _marked(text, mark):
            return steps[:MAX_STEPS]
    return [line.strip() for line in text.split("\n") if line.strip()][:MAX_STEPS]


def longer(session: Session) -> Sampling:
    """Return the sampling options of a plan: those of an action, with a larger token limit."""
    usual = session.sampling
    if usual.max_tokens is None:
        return usual
    return replace(usual, max_tokens=LONGER * usual.max_tokens)


def action_log(steps: Iterable[tuple[str, str]]) -> str:
    """Format actions and their observations as text."""
    return "\n".join(f"> {action}\n{seen}" for action, seen in steps)


def _marked(text: str, mark: re.Pattern[str]) -> list[str]:
    """Return the text behind each mark; lines with a deeper indent continue the step."""
    steps: list[str] = []
    margin = ""
    for line in text.split("\n"):
        if steps and line.startswith(margin + INDENT):
            steps[-1] += "\n" + line[len(margin + INDENT) :]
        elif found := mark.match(line):
            margin = margin if steps else found[1]
            steps.append(line[found.end() :])
    return [step.strip() for step in steps if step.strip()]
