"""Tasks through an operator: rules with twins, and values that the user tells one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.environment import TWIN_RULES, Apps
from palaestra.environments.families.synthesised.lines import suite_of, world_of
from palaestra.environments.families.synthesised.operated_goals import is_operated, operated_task
from palaestra.environments.families.synthesised.synthesised_tasks import drawn_task, folder
from palaestra.environments.registry import make, tasks
from tests.synthesis.made import COUNTY, lines, made

TASKS, TOLD, TWINS = 2, 4, 4


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("county") / "made"
    made(path, COUNTY.model_copy(update={"tasks": TASKS, "told": TOLD, "twins": TWINS}))
    return path


def read(county: Path, stage: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the lines of a stage, each with that of its world."""
    worlds: list[Any] = lines(county, "worlds")
    line: Any
    for line in lines(county, stage):
        yield line, worlds[line["world"]]


def every_task(county: Path) -> Iterator[tuple[Apps, Task]]:
    id = f"synthesised/{county}"
    env = make(id)
    assert isinstance(env, Apps)
    for split in Split:
        for task in tasks(id).take(split, tasks(id).count(split) or 0):
            yield env, task


def test_all_pass_the_gate_again_when_they_are_read(county: Path) -> None:
    for stage in ("told", "twins"):
        for number, (line, world) in enumerate(read(county, stage)):
            drawn = drawn_task(line, world)
            with closing(drawn.open()) as opened:
                assert rejection(opened, drawn.task, random.Random(number)) is None


def test_they_are_among_the_tasks_and_the_expert_solves_them(county: Path) -> None:
    seen = []
    for env, task in every_task(county):
        seen.append(env.reset(task).text)
        assert [env.step(action) for action in env.oracle()][-1].success
    assert len(seen) == TASKS + TOLD + 2 * TWINS == len(lines(county, "dialogues"))
    assert sum(TWIN_RULES in text for text in seen) == 2 * TWINS
    # Twins are in one world, and so in one split.
    splits = folder(str(county)).splits
    assert sorted(n for numbers in splits.values() for n in numbers) == list(range(len(seen)))


@pytest.mark.parametrize("answer", ["refused", "done", "I hand this over to a person."])
def test_constant_behaviour_passes_at_most_one_of_two_twins(county: Path, answer: str) -> None:
    passed: dict[int, int] = {}
    first = TASKS + TOLD
    for env, task in every_task(county):
        env.reset(task)
        solved = env.step(Action(f"finish(answer={answer!r})")).success
        number = dict(task.parameters)["task"]
        assert not solved or number >= first
        if number >= first:
            pair = (number - first) // 2
            passed[pair] = passed.get(pair, 0) + solved
    assert len(passed) == TWINS and max(passed.values()) <= 1
    assert sum(passed.values()) == (TWINS if answer == "refused" else 0)


def test_twins_have_the_same_words_and_a_policy_of_temporal_logic(county: Path) -> None:
    found = list(read(county, "twins"))
    for (one, world), (other, _) in zip(found[::2], found[1::2], strict=True):
        assert one["instruction"] == other["instruction"] and one["world"] == other["world"]
        assert {one["goals"][0]["permitted"], other["goals"][0]["permitted"]} == {True, False}
        clauses = drawn_task(one, world).task.policy
        assert [clause.rule.words for clause in clauses] == one["rules"]
        assert all("it" in clause.rule.formula for clause in clauses)
    assert len({one["goals"][0]["permitted"] for one, _ in found[::2]}) == 2  # which comes first


def test_what_is_told_stands_nowhere_else_and_each_question_brings_one_value(county: Path) -> None:
    for line, world in read(county, "told"):
        drawn = drawn_task(line, world)
        (goal,) = drawn.task.goals
        given = goal.slots["goal"].slots["given"]
        hidden = {gap.label: written(given[field]) for field, gap in goal.slots["gaps"].items()}
        assert len(hidden) >= 2
        with closing(drawn.open()) as opened:
            for label, value in hidden.items():
                assert value not in line["instruction"]
                asked = {"question": f"Could you tell me the {label}?"}
                said = opened.call("user.ask", asked, MAIN).body["answer"]
                assert value in said
                assert not any(v in said for v in hidden.values() if v != value)


def test_a_line_that_would_be_another_task_now_is_refused(county: Path) -> None:
    line, world = next(read(county, "told"))
    assert is_operated(line)
    with (
        closing(world_of(world, suite_of(world, user=True))) as before,
        pytest.raises(InputError, match="made by another version"),
    ):
        operated_task({**line, "instruction": "Add a cat."}, before)
