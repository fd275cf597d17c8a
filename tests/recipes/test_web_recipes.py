"""The site of proposed tasks keeps the contract; recorded workflows are of the sites they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.weblinx.environment import WebLinx
from palaestra.environments.registry import tasks
from palaestra.store.exchange.weblinx_demonstrations import demonstrations_in, read_demonstration
from recipes.web.shelter import (
    BROWSER,
    GUESSED,
    PAGES,
    PROPOSED,
    WRITTEN,
    ShelterTasks,
    buttons,
    propose,
)
from tests.browser.needed import browser_missing, without_miniwob

ID = "recipes.web.shelter:ShelterTasks"
BUTTONS = {button for page in PAGES for button in buttons(page)}


@pytest.mark.parametrize("kind", [PROPOSED, GUESSED])
def test_the_site_keeps_the_contract(kind: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"{ID}/{kind}", steps=4, per_split=2))


def test_the_proposer_finds_every_button_by_walking_through_the_site() -> None:
    world = ShelterTasks(PROPOSED)
    goals = set()
    for task in tasks(f"{ID}/{PROPOSED}").take(Split.TRAIN, 400):
        goals.add(world.reset(task).text.split(".\n")[0])
        assert world.oracle()
    assert goals == BUTTONS


def test_guesses_ask_for_what_the_site_does_not_have_and_nothing_solves_them() -> None:
    guesses = [propose(sorted(BUTTONS), GUESSED, seed) for seed in range(500)]
    assert 0.3 < sum(guess in BUTTONS for guess in guesses) / 500 < 0.5
    world = ShelterTasks(GUESSED)
    impossible = next(
        task
        for task in tasks(f"{ID}/{GUESSED}").take(Split.TRAIN, 50)
        if world.reset(task) and not world.oracle()
    )
    world.reset(impossible)
    world.step(Action("click 'Cats'"))
    ended = world.step(Action("click 'Feed Milo'"))
    assert ended.terminated and not ended.success


def test_written_tasks_name_their_button_and_each_button_has_one() -> None:
    assert {button for _, button in WRITTEN} == BUTTONS
    for words, button in WRITTEN:
        animal = button.split()[1]
        assert animal in words and f"{button}." != words


def test_the_wrong_button_ends_the_episode_unsolved() -> None:
    world = ShelterTasks(PROPOSED)
    task = tasks(f"{ID}/{PROPOSED}").task(Split.TEST, 0)
    assert world.reset(task).text.startswith(WRITTEN[0][0])
    assert not world.step(Action("click 'Dogs'")).terminated
    ended = world.step(Action("click 'Feed Rex'"))
    assert ended.terminated and not ended.success


def test_an_episode_in_the_browser_is_the_episode_in_text() -> None:
    if why := browser_missing():
        pytest.skip(why)
    shown = []
    for form in ("", BROWSER):
        world = ShelterTasks(PROPOSED + form)
        lines = [world.reset(tasks(f"{ID}/{PROPOSED}{form}").task(Split.TRAIN, 3)).text]
        while plan := world.oracle():
            last = world.step(plan[0])
            lines += [plan[0].text, last.observation.text]
        assert last.success
        world.close()
        shown.append([line for text in lines for line in text.split("\n") if line != "Shelter"])
    assert shown[0] == shown[1]


@pytest.mark.slow
def test_held_out_workflows_are_of_sites_that_training_lacks(tmp_path: Path) -> None:
    if why := without_miniwob():
        pytest.skip(why)
    from recipes.web.record_workflows import HELD_OUT, TRAINED, main

    folder = tmp_path / "workflows"
    main(folder, 1)
    found = [read_demonstration(one) for one in demonstrations_in(folder).values()]
    assert {one.site.split(".")[0] for one in found} <= {*TRAINED, *HELD_OUT}
    environment = f"weblinx/{folder}"
    sites = {
        split: {
            read_demonstration(
                folder / "demonstrations" / str(task.parameters["demonstration"])
            ).site
            for task in WebLinx.tasks(environment).take(split, 20)
        }
        for split in (Split.TRAIN, Split.TEST)
    }
    assert sites[Split.TEST] and not sites[Split.TRAIN] & sites[Split.TEST]
