"""The stage's engine knows lines and distances, and refuses what is illegal in words."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.stage.engine import CELLS, Shot, Stage, line, size_of
from palaestra.environments.families.stage.environment import TAKES, Scene

STAGE = Stage({"C2": "table", "F1": "lamp"}, {"Ann": "A2", "Ben": "E2"})


def begun(index: int) -> Scene:
    world = Scene()
    world.reset(registry.tasks("stage/scene").task(Split.TEST, index))
    return world


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("stage/scene"))


@given(st.sampled_from(CELLS), st.sampled_from(CELLS))
def test_lines_are_the_same_in_both_directions(one: str, other: str) -> None:
    there, back = line(one, other), line(other, one)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert [*there] == [*back][::-1] and one not in there and other not in there


def test_what_the_engine_refuses() -> None:
    assert STAGE.misplaced("Ann", "A2") is None
    assert STAGE.misplaced("Ann", "C2") == "the table stands on C2"
    assert STAGE.misplaced("Ann", "B2") == "B2 is not the mark of Ann"
    assert STAGE.misplaced("Ann", "A9") == "A9 is no cell"
    assert STAGE.illegal(Shot("close", "Ann"), "B2") is None
    assert STAGE.illegal(Shot("close", "Ann"), "A4") == "the shot from A4 is medium, not close"
    assert STAGE.illegal(Shot("wide", "Ann"), "D2") == "C2 is between D2 and A2"
    assert STAGE.illegal(Shot("medium", "Ann"), "C2") == "C2 is taken"
    assert STAGE.illegal(Shot("wide", "Ann"), "D4") == "A2 is in no line with D4"
    assert STAGE.cameras(Shot("medium", "Ann")) == ["A4", "C4"]  # C2 is the table


def test_sizes() -> None:
    assert [size_of(distance) for distance in (1, 2, 3, 5)] == ["close", "medium", "wide", "wide"]


@pytest.mark.parametrize("index", range(10))
def test_sampled_plans_are_the_answer_or_illegal_in_the_parts_that_differ(index: int) -> None:
    for seed in range(20):
        world = begun(index)
        plan = world.sample_action(random.Random(seed)).text
        parts = zip(plan.split("; "), world.answer().text.split("; "), strict=True)
        differ = [one.partition(":")[0] for one, right in parts if one != right]
        assert world.step(Action(plan)).info["illegal"] == differ


def test_the_last_take_ends_the_task() -> None:
    world = begun(0)
    bad = Action("marks: Ann F9, Ben F9; shots: F9, F9")
    for take in range(1, TAKES + 1):
        step = world.step(bad)
        assert step.terminated == (take == TAKES) and step.info["violations"] == 4
    assert "engine: wrong: marks; F9 is no cell, F9 is no cell" in step.observation.text
    world = begun(0)
    world.step(bad)
    assert world.step(world.answer()).success
