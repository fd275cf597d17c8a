"""The data-science environments: hidden targets, credit by stage, a reference that succeeds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import MissingSystemPart
from palaestra.core.task import Split, Task
from palaestra.environments import registry

pytest.importorskip("sklearn", reason="needs the extra palaestra[datascience]")

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject, follow
from palaestra.environments.families.datascience.data import SETS, make_data, score_submission
from palaestra.environments.families.datascience.environment import SUBMIT, DataScience

ID = "datascience/iris@unsafe"
GUESS = (
    "with open('submission.csv', 'w') as file:\n    file.write('id,target\\n')\n"
    "    for row in list(open('test.csv'))[1:]:\n        file.write(row[:4] + ',a\\n')"
)


def task(index: int = 0) -> Task:
    return registry.tasks(ID).task(Split.TRAIN, index)


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(ID, steps=6, per_split=1))


@pytest.mark.parametrize("name", SETS)
def test_a_data_set_hides_its_answers_and_is_no_copy_of_the_original(name: str) -> None:
    import sklearn.datasets

    data, other = make_data(name, random.Random(1)), make_data(name, random.Random(1))
    assert data == other != make_data(name, random.Random(2))
    head, *rows = data.test.splitlines()
    assert "target" not in head and len(rows) == len(data.ids) == len(data.hidden)
    assert {row[:4] for row in rows}.isdisjoint(row[:4] for row in data.train.splitlines())
    original = {f"{v:.4f}" for v in getattr(sklearn.datasets, SETS[name][0])().data.ravel()}
    shown = [f"{float(cell):.4f}" for row in rows for cell in row.split(",")[1:]]
    assert sum(cell in original for cell in shown) < len(shown) / 20


def test_a_submission_is_judged_by_its_rows() -> None:
    data = make_data("iris", random.Random(1))
    right = [f"{id},{'abc'[int(code)]}" for id, code in zip(data.ids, data.hidden, strict=True)]
    assert score_submission("\n".join(["id,target", *right]), data) == 1.0
    assert score_submission("\n".join(["id, target", *reversed(right)]), data) == 1.0
    wrongs = (
        ["id,target"],
        ["target,id", *right],
        ["id,target", *right[1:]],
        ["id,target", *right, right[0]],
        ["id,target", *right[1:], "r,zz"],
        [],
    )
    for wrong in wrongs:
        assert score_submission("\n".join(wrong), data) is None


@pytest.mark.slow
def test_the_reference_passes_every_stage_and_a_guess_does_not_pass() -> None:
    world = DataScience("iris@unsafe")
    assert "iris" not in world.instructions
    world.reset(task())
    stages = [0.0, *(signals.progress or 0.0 for _, signals in follow(world, world.oracle()))]
    assert stages == sorted(set(stages)) and stages[-1] == 1.0
    world.reset(task())
    world.step(Action(GUESS))
    assert 0.0 < world.progress() < 0.5
    ended = world.step(Action(SUBMIT))
    assert ended.terminated and not ended.success and "score" in ended.observation.text
    world.reset(task())
    assert not world.step(Action(SUBMIT)).success
    world.close()


@pytest.mark.slow
def test_within_walls_the_original_data_cannot_be_loaded() -> None:
    world = DataScience("wine")
    try:
        world.reset(task())
    except MissingSystemPart as error:
        pytest.skip(str(error))
    seen = world.step(Action("from sklearn.datasets import load_wine\nload_wine()"))
    assert "Error" in seen.observation.text
    assert follow(world, world.oracle())[-1][0].success
    world.close()
