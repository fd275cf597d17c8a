"""Reasoning-gym's data sets: their names, their levels, and single puzzles from them."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
from reasoning_gym.cognition import number_sequences
from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum, create_dataset

from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.families.reasoning.guard import guarded

FEEDBACK = "+feedback"
NAME = re.compile(r"(?P<title>\w+)(?:@(?P<level>\d+))?(?P<feedback>\+feedback)?")
EXCLUDED = {
    "composite": "it only mixes other data sets, which would have to be listed",
    "game_of_life_halting": "its verifier gives the full score to any text",
}
UNANSWERED = frozenset({"boxnet", "rush_hour"})
"""Data sets without reference answers."""

EXAMPLES = ("possible_answer", "example_correct_answer", "example_answer")
"""Metadata keys of a reference answer, where many answers are right."""

WHOLE = frozenset({"acre"})
"""Data sets whose first item depends on their size; they are created in their default size."""

LARGE = 10**6  # a term of a number sequence beyond this overflows; kept terms are at most 1,000


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed environment name: a data set, an optional level, and optional feedback."""

    title: str
    level: int | None
    feedback: bool


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One item of a data set."""

    title: str
    seed: int
    question: str
    reference: str | None  # the package's reference answer
    score: Callable[[str], float]  # of an answer, in [0, 1]


def titles() -> list[str]:
    return sorted(set(DATASETS) - set(EXCLUDED))


def parse_name(name: str) -> Name:
    """Parse the name of an environment.

    Raises:
        UnknownName: the data set or the level of its curriculum does not exist.
        InputError: the data set is excluded, or refuses the level of its own curriculum.
    """
    found = NAME.fullmatch(name)
    if found is None or found["title"] not in DATASETS:
        raise UnknownName("ReasoningGym environment", name, titles())
    title = found["title"]
    if title in EXCLUDED:
        raise InputError(
            f"The data set '{title}' is excluded: {EXCLUDED[title]}; choose another one."
        )
    level = None if found["level"] is None else int(found["level"])
    if level is not None:
        known = levels(title)
        if level >= known:
            choices = [f"{title}@{number}" for number in range(known)]
            raise UnknownName("level", f"{title}@{level}", choices or [title])
        try:
            _configuration(title, level, seed=0).validate()
        except (AssertionError, ValueError) as error:
            raise InputError(
                f"reasoning-gym refuses level {level} of its curriculum for '{title}' ({error}); "
                "choose another level."
            ) from error
    return Name(title, level, found["feedback"] is not None)


@cache
def levels(title: str) -> int:
    """Return the number of levels in the curriculum of a data set; 0 without a curriculum."""
    if title not in CURRICULA:
        return 0
    attributes = create_curriculum(title).attributes.values()
    return max((len(attribute.levels) for attribute in attributes), default=0)


def puzzle(name: Name, seed: int) -> Puzzle:
    """Make the first item of the data set with that seed."""
    with _isolated(seed):
        dataset = _dataset(name, seed)
        entry: dict[str, Any] = dataset[0]

    reference = _reference(entry)

    def score(answer: str) -> float:
        with _quiet():
            given = answer if answer == reference else guarded(name.title, answer)
            try:
                return float(dataset.score_answer(given, entry))
            except Exception:  # some verifiers raise on what they cannot read
                return 0.0

    return Puzzle(name.title, seed, entry["question"], reference, score)


def _dataset(name: Name, seed: int) -> Any:
    if name.level is None:
        size = {} if name.title in WHOLE else {"size": 1}
        return create_dataset(name.title, seed=seed, **size)
    return DATASETS[name.title][0](config=_configuration(name.title, name.level, seed))


def _configuration(title: str, level: int, seed: int) -> Any:
    curriculum = create_curriculum(title)
    curriculum.set_global_level(level)
    return curriculum.generate_configuration({"seed": seed, "size": 1})


def _reference(entry: dict[str, Any]) -> str | None:
    found = entry["answer"]
    for key in EXAMPLES:
        found = entry["metadata"].get(key) if found is None else found
    return found if found is None or isinstance(found, str) else json.dumps(found)


@contextlib.contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """Seed and then restore the global rngs of Python and numpy, which two data sets use."""
    state, numbers = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    try:
        with _quiet(), _bounded():
            yield
    finally:
        random.setstate(state)
        numpy.random.set_state(numbers)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sympy's and Python's warnings about an answer
        yield


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Stop the repeated squaring of terms, which does not end for one seed in a thousand.

    The package discards number sequences with terms beyond 1,000, and those that overflow, so an
    early overflow changes none of its items.
    """
    whole = number_sequences.PatternRule.apply

    def apply(rule: Any, sequence: list[int], position: int) -> int:
        if abs(sequence[position]) > LARGE:
            raise OverflowError("the package would discard this sequence")
        return whole(rule, sequence, position)

    number_sequences.PatternRule.apply = apply
    try:
        yield
    finally:
        number_sequences.PatternRule.apply = whole
