"""The tasks of a synthesis as an environment: splits, the contract, evaluation, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.synthesised.synthesised_tasks import folder
from palaestra.environments.registry import make, spec, tasks
from tests.synthesis.made import COUNTY, lines, made

WORLDS = 4


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("county") / "made"
    made(path, COUNTY.model_copy(update={"worlds": WORLDS, "tasks": 6}))
    return path


def test_no_world_of_a_split_is_in_another(county: Path) -> None:
    found = folder(str(county))
    assert sorted(number for numbers in found.splits.values() for number in numbers) == [*range(6)]
    worlds = [{found.tasks[n]["world"] for n in found.splits[split]} for split in Split]
    assert all(worlds)
    assert sum(map(len, worlds)) == len(set[int]().union(*worlds)) == WORLDS


def test_with_two_worlds_no_task_of_a_split_is_in_another(tmp_path: Path) -> None:
    made(tmp_path / "made", COUNTY.model_copy(update={"worlds": 2, "tasks": 3}))
    splits = folder(str(tmp_path / "made")).splits
    assert splits == {Split.TEST: [0], Split.VALIDATION: [1], Split.TRAIN: [2]}


def test_the_expert_solves_what_was_written_and_nothing_else_does(county: Path) -> None:
    id = f"synthesised/{county}"
    wordings = {line["instruction"] for line in lines(county, "tasks")}
    env = make(id)
    for split in Split:
        for task in tasks(id).take(split, tasks(id).count(split) or 0):
            assert env.reset(task).text.partition("Task: ")[2] in wordings
            plan = env.oracle()
            assert len(plan) <= spec(id).typical_turns
            assert [env.step(action) for action in plan][-1].success
            env.reset(task)
            assert not env.step(Action('finish(answer="")')).success
    env.close()


def test_a_command_evaluates_on_a_folder(
    county: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--env", f"synthesised/{county}:all", "--model", "expert", "-n", "2", "--json"]
    assert main(["eval", *given, "--run", str(tmp_path / "run"), "--workers", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["success"] == 1


def test_a_folder_in_which_something_is_not_as_it_was_is_refused(
    county: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="holds no synthesis"):
        spec(f"synthesised/{tmp_path}")
    changed = tmp_path / "changed"
    shutil.copytree(county, changed)
    (changed / "tasks.jsonl").write_text("")
    with pytest.raises(InputError, match="was changed since"):
        tasks(f"synthesised/{changed}")
    begun = tmp_path / "begun"
    shutil.copytree(county, begun)
    state = json.loads((begun / "synthesis.json").read_text())
    del state["finished"]["rows"]
    (begun / "synthesis.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="is not finished"):
        pa.evaluate(f"synthesised/{begun}", model="expert", n=1, progress=False)
    env = make(f"synthesised/{county}")
    for task in (
        Task("x", env.spec.id, 0, Split.TEST),
        Task("x", env.spec.id, 0, Split.TEST, parameters={"task": 99}),
        Task("x", env.spec.id, 0, Split.TEST, parameters={"task": 0, "more": 1}),
    ):
        with pytest.raises(InputError, match="is none of"):
            env.reset(task)


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("form", ["", ":discover", ":code"])
def test_the_contract_holds(county: Path, form: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"synthesised/{county}{form}"))
