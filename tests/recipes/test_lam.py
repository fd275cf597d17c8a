"""Plans of an application's help are grounded in its pages, and only what works is learned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.gesture import Gesture, Words
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.registry import tasks
from palaestra.store.run_folder import RunFolder
from recipes.web.cattery import ACTIONS, BROWSER, PLANS, Cattery
from recipes.web.collect_plans import KEPT, NOT_DONE, Collector, collected, main
from recipes.web.plan_grounding import FINISH, HELP, NotGrounded, grounded, plans_of
from tests.browser.needed import browser_missing

ID = "recipes.web.cattery:Cattery/"


def opened(kind: str, number: int = 0) -> Cattery:
    world = Cattery(kind)
    world.reset(tasks(f"{ID}{kind}").task(Split.TRAIN, number))
    return world


@pytest.mark.parametrize("kind", [ACTIONS, PLANS])
def test_the_application_keeps_the_contract(kind: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"{ID}{kind}", steps=4, per_split=2))


def test_the_help_knows_every_task_and_the_first_write_up_of_each_works() -> None:
    world, kinds = Cattery(PLANS), set()
    for task in tasks(f"{ID}{PLANS}").take(Split.TEST, 60):
        world.reset(task)
        first, *others = plans_of(world.goal)
        assert others
        assert world.step(Action("\n".join(first))).success, world.goal
        kinds.add(len(first))
    assert len(kinds) > 2


def test_a_write_up_that_forgets_to_save_ends_unsolved() -> None:
    for number in range(60):
        world = opened(PLANS, number)
        if not world.goal.startswith(("Set", "Change")):
            continue
        saving, forgetting = plans_of(world.goal)
        assert [step for step in saving if step not in forgetting] == ["Press 'Save'."]
        ended = world.step(Action("\n".join(forgetting)))
        assert ended.terminated and not ended.success
        return
    raise AssertionError("no task changes a cat")


def test_a_step_is_the_gesture_that_its_control_takes() -> None:
    world = opened(ACTIONS)
    assert grounded("Open 'the Cattery'.", world.elements()) == Gesture("click", Words("Cattery"))
    for action in ("click 'Cattery'", "click 'Create cat'"):
        world.step(Action(action))
    page = world.elements()
    assert grounded("Fill 'Name' with 'Fern'.", page).kind == "type"
    assert grounded("Fill 'Colour' with 'grey'.", page).kind == "select"
    assert grounded(FINISH, page) == Gesture("answer", text="")


@pytest.mark.parametrize(
    "step",
    ["Open 'Invoices'.", "Open 'cats'.", "Press 'Create cat'.", "Fill 'Age' with '3'.", "Go!"],
)
def test_a_step_without_one_control_that_fits_is_not_grounded(step: str) -> None:
    world = opened(ACTIONS)
    world.step(Action("click 'Cattery'"))
    with pytest.raises(NotGrounded):
        grounded(step, world.elements())


def test_a_plan_ends_at_a_step_that_cannot_be_grounded() -> None:
    world = opened(PLANS)
    ended = world.step(Action("Open 'Cattery'.\nOpen 'Invoices'.\nFinish."))
    assert ended.terminated and not ended.success and "Invoices" in ended.observation.text
    assert world.gestures == ["click 'Cattery'"]


def test_every_episode_is_recorded_with_the_verdict_and_only_plans_that_work_become_actions() -> (
    None
):
    recorded: dict[str, list[Episode]] = {PLANS: [], ACTIONS: []}
    collector = Collector("", 0, lambda kind, episode: recorded[kind].append(episode))
    found = asyncio.run(collected(collector, 24))
    solved = [one for one in recorded[PLANS] if one.outcome.solved]
    assert found[KEPT] == len(solved) == len(recorded[ACTIONS])
    assert found[KEPT] + found[NOT_DONE] == len(recorded[PLANS]) == 24
    assert found[KEPT] and found[NOT_DONE]
    assert all(one.outcome.solved for one in recorded[ACTIONS])


def test_every_kind_of_task_has_a_write_up_that_works_and_one_that_is_of_another_version() -> None:
    assert all(len(write_ups) == 2 for write_ups in HELP.values())


@pytest.mark.slow
def test_pages_in_the_browser_read_as_those_in_text_and_are_collected(tmp_path: Path) -> None:
    if why := browser_missing():
        pytest.skip(why)
    shown = []
    for form in ("", BROWSER):
        world, lines = Cattery(f"{ACTIONS}{form}"), list[str]()
        for task in tasks(f"{ID}{ACTIONS}{form}").take(Split.TRAIN, 3):
            lines.append(world.reset(task).text)
            while plan := world.oracle():
                lines.append(world.step(plan[0]).observation.text)
        world.close()
        shown.append(lines)
    assert shown[0] == shown[1]
    main(tmp_path / "real", 6, BROWSER, seed=0)
    main(tmp_path / "text", 6, "", seed=0)
    gestures = []
    for folder in ("real", "text"):
        with RunFolder.read(tmp_path / folder / ACTIONS) as run:
            episodes = run.database.episodes(ACTIONS)
            gestures.append([[step.action.text for step in one.steps] for one in episodes])
    assert gestures[0] == gestures[1] and gestures[0]
