"""Feedback to a task generator: which skills the agent still lacks.

Source: EnvGen (Zala et al. 2024), where a language model revises the settings of training
environments, given the agent's success rate per skill, and the agent trains on a mixture of
generated and original environments. What the generator does with the request is up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from palaestra.core.errors import RecipeError
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Share


@dataclass(frozen=True, slots=True)
class Tally:
    """Attempts and successes of one skill."""

    successes: int = 0
    attempts: int = 0

    @property
    def failure_rate(self) -> float:
        """Share of attempts that failed; 1 without attempts: the skill is not shown yet."""
        return (self.attempts - self.successes) / self.attempts if self.attempts else 1.0


@dataclass(frozen=True, slots=True)
class Mix:
    """A mixture to train on next; the shares sum to 1."""

    original: float  # of ordinary tasks
    skills: Mapping[str, float]  # of generated tasks, by the skill that they should exercise


def tallies(labelled: Iterable[tuple[str, bool]]) -> dict[str, Tally]:
    """Count (skill, whether it succeeded) by skill."""
    found: dict[str, Tally] = {}
    for skill, success in labelled:
        before = found.get(skill, Tally())
        found[skill] = Tally(before.successes + success, before.attempts + 1)
    return found


@component(
    Kind.CURRICULUM,
    "envgen",
    source="Zala et al. 2024 (EnvGen): generated worlds for weak skills",
    status=Status.EXPERIMENTAL,
    needs=[Need.SKILL],
)
def weak_skills(
    skills: Mapping[str, Tally], *, original: Share = 0.5, mastered: Share = 0.1
) -> Mix:
    """Ask for tasks on weak skills: in proportion to failure rates, besides the original tasks.

    In the source the generator reads the rates as text and decides itself; shares in
    proportion are ours.

    Args:
        skills: tally by skill.
        original: share of ordinary tasks; all, once every skill is mastered.
        mastered: skills with at most this failure rate get no tasks of their own.

    Raises:
        RecipeError: the share is not in [0, 1].
    """
    if not 0 <= original <= 1:
        raise RecipeError(f"The share of original tasks is {original}; use a number in [0, 1].")
    lacking = {
        name: tally.failure_rate if tally.failure_rate > mastered else 0.0
        for name, tally in skills.items()
    }
    total = math.fsum(lacking.values())
    if total == 0:
        return Mix(1.0, lacking)
    return Mix(original, {name: (1 - original) * rate / total for name, rate in lacking.items()})


def requested(mix: Mix, count: int) -> dict[str, int]:
    """Return how many of `count` tasks to generate per skill; the rest are ordinary ones.

    By largest remainders, so that counts sum up; ties go to ordinary tasks, then by name.
    """
    names = sorted(mix.skills)
    numbers = apportioned(count, [mix.original, *(mix.skills[name] for name in names)])
    return dict(zip(names, numbers[1:], strict=True))


def apportioned(count: int, shares: Sequence[float]) -> list[int]:
    """Divide a count by shares that sum to 1, by largest remainders; ties go to the first."""
    numbers = [math.floor(count * share + 1e-9) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (numbers[i] - count * shares[i], i))
    for i in order[: count - sum(numbers)]:
        numbers[i] += 1
    return numbers
