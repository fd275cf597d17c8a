"""Questions keep the contract, and what they tell is what the answer is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.questions.environment import PROPERTIES, Questions

ID = "questions/things-3"


def begun(index: int) -> Questions:
    world = Questions("things-3")
    world.reset(registry.tasks(ID).task(Split.TRAIN, index))
    return world


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", ["questions/things-2", ID, "questions/things-4"])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


@pytest.mark.parametrize("index", range(6))
def test_the_answers_to_the_questions_name_the_thing(index: int) -> None:
    world = begun(index)
    told = [world.step(Action(name)).observation.text for name in list(PROPERTIES)[:3]]
    assert world.progress() == 0.75
    assert world.answer() == Action(" ".join(told))
    last = world.step(world.answer())
    assert (last.success, last.terminated, last.reward) == (True, True, 1.0)


def test_a_wrong_name_ends_the_task_and_an_unknown_word_does_not() -> None:
    world = begun(0)
    assert not world.step(Action("age")).valid  # of a thing with four properties
    wrong = next(w for w in world.admissible()[3:] if w != world.answer().text)
    last = world.step(Action(f"{wrong.upper()}."))
    assert (last.success, last.terminated) == (False, True)


def test_all_things_are_hidden_somewhere() -> None:
    assert len({begun(index).answer().text for index in range(80)}) == 8
