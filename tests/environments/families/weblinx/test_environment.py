"""Turns of demonstrations as tasks: the history is shown, and an action is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.element import Box
from palaestra.core.environment import Action, Environment, Transition
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from tests.store.exchange.weblinx_made import SEARCH, act, with_screenshots, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two", "three"):
        write(tmp_path, name, SEARCH)
    splits = {"train": ["one"], "valid": ["two"], "test_iid": ["three"], "test_web": ["one"]}
    (tmp_path / "splits.json").write_text(json.dumps(splits))
    return tmp_path


def begun(folder: Path, turn: int, query: str = "") -> tuple[Environment, pa.Observation]:
    id = f"weblinx/{folder}{query}"
    tasks = registry.tasks(id)
    task = next(
        task
        for task in tasks.take(Split.TEST, tasks.count(Split.TEST) or 0)
        if task.parameters["turn"] == turn
    )
    environment = registry.make(id)
    return environment, environment.reset(task)


def answered(folder: Path, turn: int, line: str, query: str = "") -> Transition:
    return begun(folder, turn, query)[0].step(Action(line))


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("query", ["", "?observation=text&targets=words"])
def test_the_contract_holds(folder: Path, query: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"weblinx/{folder}{query}", steps=2, per_split=8))


def test_each_turn_of_the_navigator_is_a_task(folder: Path) -> None:
    tasks = registry.tasks(f"weblinx/{folder}")
    assert tasks.count(Split.TRAIN) == tasks.count(Split.VALIDATION) == 8
    taken = tasks.take(Split.TEST, 8)
    assert [task.parameters["turn"] for task in taken] == [1, 3, 4, 5, 6, 7, 8, 9]
    assert {task.parameters["demonstration"] for task in taken} == {"three"}
    other = registry.tasks(f"weblinx/{folder}:test_web")
    assert other.task(Split.TEST, 0).parameters["demonstration"] == "one"
    assert other.count(Split.TRAIN) == 0


def test_the_history_is_shown_and_nothing_of_the_answer(folder: Path) -> None:
    _, first = begun(folder, 3)
    assert first.text == "User: Hello\nYou: Hi, what can I do?\nUser: Find red shoes\n" + (
        "[home] link 'Home'\nSearch for\n[field] textbox 'Search for'\n[find] button 'Find'\n"
        "[size] combobox, value='medium'\n[s] option 'small'\n[m] option 'medium', selected\n"
        "[card] generic 'Red shoes 20 €', clickable"
    )
    environment, late = begun(folder, 8, "?observation=text&targets=words")
    assert late.text.startswith("User: Hello\nUser: Find red shoes\nYou: go 'http://shop.example/'")
    assert "\nYou: scroll down 200\nPage: http://shop.example/\nlink 'Home'\n" in late.text
    assert environment.oracle() == [Action("click 'Red shoes 20 €'")]


def test_an_action_is_judged_by_intent_element_and_text(folder: Path) -> None:
    same = answered(folder, 5, "type [field] 'red shoes' enter")
    assert same.success and same.reward == 1.0 and same.terminated
    part = answered(folder, 5, "type [field] 'red boots'")
    assert not part.success and 0 < part.reward < 1 and part.info["element"] == 1.0
    assert part.reward == pytest.approx(part.info["text"], abs=1e-4)
    assert answered(folder, 5, "click [field]").reward == 0.0
    assert answered(folder, 5, "type [find] 'red shoes'").reward == 0.0
    assert answered(folder, 9, "answer 'They cost 20 €.'").success


@pytest.mark.parametrize(
    ("line", "reward"),
    [
        ("click [card]", 1.0),
        ("click 'red shoes'", 1.0),  # a text within
        ("click (50, 150)", 1.0),
        ("click (0.0625, 0.25)", 1.0),
        ("click #5", 1.0),
        ("click [home]", 0.0),
        ("click [nowhere]", 0.0),
        ("click 'blue shirt'", 0.0),
        ("click", 0.0),
    ],
)
def test_a_target_may_be_named_in_any_way(folder: Path, line: str, reward: float) -> None:
    judged = answered(folder, 8, line)
    assert judged.reward == reward and judged.terminated


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds_with_screenshots(
    folder: Path, clause: Callable[[Subject], None]
) -> None:
    with_screenshots(folder, scale=1)
    clause(Subject.of(f"weblinx/{folder}?observation=text+picture", steps=2, per_split=1))


def test_screenshots_are_the_picture_in_whose_pixels_boxes_and_points_are(folder: Path) -> None:
    with_screenshots(folder, scale=2)
    tasks = registry.tasks(f"weblinx/{folder}")
    turns = [tasks.task(Split.TEST, n).parameters["turn"] for n in range(7)]
    assert tasks.count(Split.TEST) == 7 and turns == [3, 4, 5, 6, 7, 8, 9]  # the first has none yet
    environment, first = begun(folder, 8, "?observation=marks")
    assert "#5 generic 'Red shoes 20 €', clickable" in first.text and len(first.images) == 1
    shown = {one.id: one.box for one in elements_of(environment)}
    assert shown["field"] == Box(200, 100, 400, 60)
    assert environment.step(Action("click (790, 430)")).success
    page = answered(folder, 8, "click (810, 430)")  # which is 800 pixels wide and 2000 high
    assert page.reward == pytest.approx(400 * 100 / (800 * 2000))


def test_what_is_no_gesture_is_refused_and_the_turn_goes_on(folder: Path) -> None:
    environment, _ = begun(folder, 8)
    refused = environment.step(Action("I click the shoes"))
    assert not refused.valid and "is no gesture" in refused.observation.text
    assert environment.step(Action("click [card]")).success


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/nowhere", "The folder '/nowhere' of 'weblinx//nowhere' does not exist; check the path"),
        ("{}:test_cat", "no split of these demonstrations 'test_cat'. Did you mean 'test_"),
        ("{}/demonstrations/one", "holds no demonstrations of WebLINX"),
        ("", "names no folder; write weblinx/FOLDER"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        registry.make(f"weblinx/{name.format(folder)}")


def test_a_task_of_another_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, "four", [act("click", "find")])
    task = registry.tasks(f"weblinx/{other}").task(Split.TEST, 0)
    with pytest.raises(InputError, match="holds no demonstration 'four'; check the folder"):
        registry.make(f"weblinx/{folder}").reset(task)
    mine = replace(task, parameters={"demonstration": "one", "turn": 2})  # the user's
    with pytest.raises(InputError, match="is no turn of"):
        registry.make(f"weblinx/{folder}").reset(mine)


def test_an_expert_has_all_of_the_score_through_evaluate(folder: Path) -> None:
    results = pa.evaluate(f"weblinx/{folder}", model="expert", n=8, workers=0, progress=False)
    assert results.success == 1.0
