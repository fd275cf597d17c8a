"""Users with manners: the words around a task differ, its values and its verdict do not."""

from __future__ import annotations

import json

import pytest

from palaestra.core.task import Split
from palaestra.environments.families.synthesised.synthesised_tasks import SynthesisedApps
from palaestra.environments.families.synthesised.user_manners import drawn_manner
from palaestra.synthesis.domain_file import Domain
from tests.synthesis.made import ABOUT, contents, lines, made

PLAIN = Domain(name="county", about=ABOUT, seed=7, blueprints=4, worlds=2, tasks=4, told=3)
SPOKEN = PLAIN.model_copy(update={"personas": True})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("personas")
    for name, domain in (("plain", PLAIN), ("spoken", SPOKEN), ("again", SPOKEN)):
        made(folder / name, domain)
    return folder


def test_the_same_tasks_are_asked_for_in_other_words(folders) -> None:
    for stage in ("tasks", "told"):
        plain, spoken = (lines(folders / name, stage) for name in ("plain", "spoken"))
        assert len(plain) == len(spoken)
        for one, other in zip(plain, spoken, strict=True):
            assert str(one["instruction"]) in str(other["instruction"])
        words = [str(line["instruction"]) for line in spoken]
        assert words != [str(line["instruction"]) for line in plain]
    greetings = {drawn_manner(f"task 7 {number}") for number in range(40)}
    assert len(greetings) > 30


def test_equal_seeds_give_equal_files(folders) -> None:
    assert contents(folders / "spoken") == contents(folders / "again")
    assert contents(folders / "spoken") != contents(folders / "plain")


def test_every_task_with_a_persona_has_a_dialogue_in_which_values_are_told(folders) -> None:
    dialogues = lines(folders / "spoken", "dialogues")
    assert len(dialogues) == len(lines(folders / "plain", "dialogues")) == 7
    answers = [
        json.loads(message["content"])["answer"]
        for row in lines(folders / "spoken", "rows")
        for message in row["messages"]
        if message["role"] == "user" and message["content"].startswith('{"answer"')
    ]
    assert answers and any("\n" in answer for answer in answers)


def test_the_tasks_are_an_environment(folders) -> None:
    env = SynthesisedApps(str(folders / "spoken"))
    tasks = SynthesisedApps.tasks(f"synthesised/{folders / 'spoken'}")
    count = 0
    for split in Split:
        for number in range(tasks.count(split) or 0):
            env.reset(tasks.task(split, number))
            *_, step = (env.step(action) for action in env.oracle())
            assert step.success
            count += 1
    assert count == 7
    env.close()
