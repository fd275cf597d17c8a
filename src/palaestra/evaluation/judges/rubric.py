"""Rubrics: the question for a model judge, and the only reply format that it may use.

A rubric is a question with numbered criteria, each answered yes or no:

    [rubric]                       # a TOML file
    question = "Was the bill paid?"
    criteria = ["The bill of the task was paid.", {text = "Nothing else was paid.", weight = 2}]

With `windows = true` a judge reads a long record in overlapping windows, and answers the criteria
for each (He et al. 2025, VitaBench). A criterion then holds if it does in some window, or, with
`always = true`, in all of them:

    [rubric]
    question = "Was the bill paid, and nothing else?"
    windows = true
    criteria = ["The bill was paid.", {text = "Nothing else was paid.", always = true}]

A reply in another format is no verdict: a judge that rambles, refuses or contradicts itself
reveals nothing about the agent.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError, UnknownName
from palaestra.evaluation.judges.verdict import Choice

ANSWER = re.compile(r"\s*(\d+)\s*[:.)]\s*(yes|no)\s*[.]?\s*", re.IGNORECASE)
KEYS = ("question", "criteria", "windows")
BETTER = re.compile(r"\s*better\s*:\s*(a|b|equal)\s*[.]?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Criterion:
    """One yes-or-no question."""

    text: str
    weight: float = 1.0
    always: bool = False  # with windows: it must hold in each of them, and not only in one


@dataclass(frozen=True, slots=True)
class Rubric:
    """The question and the criteria by which a judge assesses an episode."""

    question: str
    criteria: tuple[Criterion, ...]
    windows: bool = False  # a long record is read in overlapping windows

    @property
    def form(self) -> str:
        """The question and the reply format, as text for the judge."""
        asked = "\n".join(
            f"{i}. {c.text}{' (in every part)' if c.always else ''}"
            for i, c in enumerate(self.criteria, 1)
        )
        example = "\n".join(f"{i}: yes or no" for i in range(1, len(self.criteria) + 1))
        return (
            f"{self.question}\n{asked}\n\nAnswer each criterion on a line of its own, exactly so:\n"
            f"{example}\nReason: one sentence"
        )

    def value(self, reply: str) -> float:
        """Return the weighted share of criteria answered yes; raises ValueError like `answers`."""
        return self.share(self.answers(reply))

    def share(self, answers: Mapping[int, bool]) -> float:
        """Return the weighted share of criteria that hold.

        Args:
            answers: whether each holds, by its number, from 1.
        """
        total = sum(criterion.weight for criterion in self.criteria)
        held = sum(c.weight for i, c in enumerate(self.criteria, 1) if answers[i])
        return held / total

    def merged(self, windows: Sequence[Mapping[int, bool]]) -> dict[int, bool]:
        """Return which criteria hold in a record, by the answers for its windows so far."""
        return {
            number: (all if criterion.always else any)(answers[number] for answers in windows)
            for number, criterion in enumerate(self.criteria, 1)
        }

    def answers(self, reply: str) -> dict[int, bool]:
        """Return whether each criterion was answered yes, by its number.

        Raises:
            ValueError: the reply is malformed; the message says why.
        """
        answers: dict[int, bool] = {}
        for line in reply.splitlines():
            found = ANSWER.fullmatch(line)
            if found is None:
                continue
            number, answer = int(found[1]), found[2].lower() == "yes"
            if answers.get(number, answer) != answer:
                raise ValueError(f"it answers criterion {number} with both yes and no")
            answers[number] = answer
        wanted = set(range(1, len(self.criteria) + 1))
        if strange := sorted(set(answers) - wanted):
            raise ValueError(f"it answers criterion {strange[0]}, which does not exist")
        if missing := sorted(wanted - set(answers)):
            raise ValueError(f"it does not answer criterion {missing[0]}")
        return answers


SOLVED = Rubric(
    "Was the task solved?",
    (Criterion("By the end of the record, the agent has done what the task asks."),),
)
"""The default rubric."""


def reason_in(reply: str) -> str:
    """Return the text after `Reason:`; empty if there is none."""
    found = re.search(r"^\s*reason\s*:\s*(.+)$", reply, re.IGNORECASE | re.MULTILINE)
    return found[1].strip() if found else ""


def choice_in(reply: str) -> Choice:
    """Return which of A and B a reply prefers; NONE unless it says so exactly once."""
    found = [match[1].lower() for line in reply.splitlines() if (match := BETTER.fullmatch(line))]
    if len(set(found)) != 1:
        return Choice.NONE
    return {"a": Choice.FIRST, "b": Choice.SECOND, "equal": Choice.EQUAL}[found[0]]


def read_rubric(path: Path) -> Rubric:
    """Read the rubric in a TOML file.

    Raises:
        InputError: the file cannot be read, or is not a rubric.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("rubric")
    except (OSError, ValueError) as error:
        raise InputError(f"The rubric {path} cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} has no table [rubric]; add one with a question and criteria.")
    return rubric_of(found, str(path))


def rubric_of(found: Mapping[str, Any], name: str = "given") -> Rubric:
    """Make a rubric from a table with `criteria` and, optionally, `question` and `windows`.

    Args:
        found: the table.
        name: the rubric's name in error messages.

    Raises:
        InputError: the table is not a rubric.
    """
    for key in found:
        if key not in KEYS:
            raise UnknownName("key of a rubric", key, KEYS)
    criteria = found.get("criteria")
    if not isinstance(criteria, (list, tuple)) or not criteria:
        raise InputError(f"The rubric {name} has no criteria; give at least one.")
    windows = found.get("windows", False)
    if not isinstance(windows, bool):
        raise InputError(f"`windows` of the rubric {name} is {windows!r}; write true or false.")
    read = tuple(_read(c) for c in criteria)
    if not windows and any(criterion.always for criterion in read):
        raise InputError(
            f"A criterion of the rubric {name} is to hold `always`, that is, in each window, but "
            "the record is read as a whole; add windows = true, or drop `always`."
        )
    return Rubric(str(found.get("question", SOLVED.question)), read, windows)


def _read(given: Any) -> Criterion:
    if isinstance(given, str) and given.strip():
        return Criterion(given)
    if isinstance(given, dict) and set(given) <= {"text", "weight", "always"} and given.get("text"):
        weight, always = given.get("weight", 1.0), given.get("always", False)
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if number and weight > 0 and isinstance(always, bool):
            return Criterion(str(given["text"]), float(weight), always)
    raise InputError(
        f"{given!r} is not a criterion; give a sentence, or {{text, weight above 0, always}}."
    )
