"""Plans: numbered lines of text, as planners write them and executors read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from palaestra.core.model import Sampling
from palaestra.core.session import Session

MOST = 50  # steps of a plan that are read; a longer one is made anew when they are done
LONGER = 4  # a plan may be so many times as long as an action
INDENT = "   "  # of a step's further lines
REACHED = re.compile(r"^\s*Reached:\s*yes", re.IGNORECASE | re.MULTILINE)

_NUMBER = re.compile(r"^(\s*)(?:step\s+)?\d+\s*[.):]\s*", re.IGNORECASE)
_BULLET = re.compile(r"^(\s*)[-*•]\s+")


def numbered(steps: Iterable[str]) -> str:
    """Steps as a plan; `steps_of` reads them back."""
    lines = (step.strip().replace("\n", f"\n{INDENT}") for step in steps)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def steps_of(text: str) -> list[str]:
    """The steps of a plan: its numbered lines, else its bulleted ones, else all its lines."""
    for mark in (_NUMBER, _BULLET):
        if steps := _marked(text, mark):
            return steps[:MOST]
    return [line.strip() for line in text.split("\n") if line.strip()][:MOST]


def longer(session: Session) -> Sampling:
    """How to sample a plan: as an action, with more room."""
    usual = session.sampling
    return replace(usual, max_tokens=LONGER * usual.max_tokens)


def told(happened: Iterable[tuple[str, str]]) -> str:
    """Actions and what they led to, for who was not there."""
    return "\n".join(f"> {action}\n{seen}" for action, seen in happened)


def _marked(text: str, mark: re.Pattern[str]) -> list[str]:
    """What stands behind the marks; lines indented further than theirs go on with a step."""
    steps: list[str] = []
    margin = ""
    for line in text.split("\n"):
        if steps and line.startswith(margin + INDENT):
            steps[-1] += "\n" + line[len(margin + INDENT) :]
        elif found := mark.match(line):
            margin = margin if steps else found[1]
            steps.append(line[found.end() :])
    return [step.strip() for step in steps if step.strip()]
