"""A test takes each task of a split once, and says so where the recipe asks for more."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.evaluation.reports import report as reports
from palaestra.evaluation.reports.report_files import headline, markdown
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.evaluation.made import full_run
from tests.training.runs import write_recipe

ROWS = {split: [{"word": word} for word in ("yes", "no", "so")] for split in Split}


class Words(Environment, free_text=True, typical_turns=1):
    """Say the word: three tasks in each split."""

    instructions = "Say the word."

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return ListedTasks(environment, rows=ROWS)

    def reset(self, task: Task) -> Observation:
        self.word = task.parameters["word"]
        return Observation(self.word)

    def step(self, action: Action) -> Transition:
        right = action.text == self.word
        return Transition(Observation(""), float(right), terminated=True, success=right)


HERE = f"{__name__}:Words"


def test_a_split_gives_each_task_once() -> None:
    known = Words.tasks(HERE)
    assert [task.id for task in known.take_once(Split.TEST, 8)] == ["test/0", "test/1", "test/2"]
    assert known.take_once(Split.TEST, 2) == known.take(Split.TEST, 2)
    endless = TaskSet("probe/memory-4")
    assert endless.take_once(Split.TEST, 8) == endless.take(Split.TEST, 8)


def test_a_test_that_asks_for_more_tasks_than_there_are_says_so(tmp_path: Path) -> None:
    keys = [
        *("imitation.demonstrations=0", "rl.steps=0", "evaluation.tasks=8"),
        *(f"environment.id={HERE}", "environment.transfer=", "environment.workers=0"),
    ]
    recipe, output = load(str(write_recipe(tmp_path)), keys), io.StringIO()
    with RunFolder.create(tmp_path / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=output, width=200))))
    with RunFolder.read(tmp_path / "run") as run:
        episodes = run.database.episodes("test/base")
        found = reports.build(run.database, run.path)
    remark = f"'{HERE}' has 3 test tasks, and each of them is taken once (requested: 8)."
    assert [episode.task.id for episode in episodes] == ["test/0", "test/1", "test/2"]
    assert output.getvalue().count(remark) == 1
    assert found.held_out.scores["base"].tasks == 3
    assert remark in headline(found) and remark in markdown(found)
    assert reports.as_json(found)["remarks"] == [remark]


def test_the_report_of_an_older_run_that_repeated_tasks_says_that_intervals_are_too_narrow() -> (
    None
):
    store = full_run(8)
    assert reports.build(store, Path("run")).remarks == ()
    for phase in ("test/base", "test/rl"):
        store.recorded[phase] = [
            replace(one, task=TaskSet("words").task(Split.TEST, one.key.group % 3))
            for one in store.recorded[phase]
        ]
    [remark] = reports.build(store, Path("run")).remarks
    assert remark == (
        "'words' has 3 test tasks, and 8 episodes repeat them, so intervals are too narrow."
    )
