"""The pages of MiniWoB++ keep the contract, and real clicks and keys solve them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import palaestra as pa
from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.registry import make, tasks
from tests.browser.needed import without_miniwob

if why := without_miniwob():
    pytest.skip(why, allow_module_level=True)

from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.environment import MiniWob
from palaestra.environments.families.miniwob.pages import MIXTURES, names, of_task
from palaestra.environments.families.miniwob.solver import SOLVERS, Page, plan


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["click-button", "enter-text", "login-user", "click-tab-2-hard"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    # Closing what a clause leaves open: all worlds share a browser, which ends with the last one.
    finding = check_clause(Subject.of(f"miniwob/{name}", steps=5, per_split=1), clause)
    assert not finding.broken, finding.broken


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
def test_the_solver_solves_its_pages(name: str) -> None:
    world = MiniWob(name)
    for split in Split:
        for index in range(10):
            world.reset(tasks(f"miniwob/{name}").task(split, index))
            while left := world.oracle():  # a new plan in each turn, as an expert's
                last = world.step(left[0])
                assert last.valid, last.observation.text
            assert last.success, f"{split}/{index}"
    world.close()


def test_a_button_that_another_one_covers_is_clicked_where_it_can_be_seen() -> None:
    world = MiniWob("click-button-sequence")
    world.reset(tasks("miniwob/click-button-sequence").task(Split.TEST, 176))
    by_id, second = (world.step(Action(f"click [{n}]")) for n in (7, 9))
    assert "covers it" in by_id.observation.text and not second.terminated
    world.reset(tasks("miniwob/click-button-sequence").task(Split.TEST, 176))
    one, two = world.oracle()
    assert not world.step(one).terminated
    assert world.step(two).success
    world.close()
    for name in ("click-test-2", "click-test-transfer"):
        world = MiniWob(name)
        world.reset(tasks(f"miniwob/{name}").task(Split.TEST, 176))
        assert world.step(*world.oracle()).success
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["basic", "basic-challenge"])
def test_words_name_all_that_the_solver_acts_on(name: str) -> None:
    id = f"miniwob/{name}?observation=text&targets=words"
    world = make(id)
    for index in range(40):
        first = world.reset(tasks(id).task(Split.TRAIN, index))
        assert not re.search(r"^\[\d", first.text, re.MULTILINE)
        while left := world.oracle():
            assert "[" not in left[0].text
            last = world.step(left[0])
        assert last.success, index
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_page_begins_equally_and_lasts_a_minute(name: str) -> None:
    world, other = MiniWob(name), MiniWob(name)
    task = tasks(f"miniwob/{name}").task(Split.TEST, 0)
    assert world.reset(task) == other.reset(task)
    assert world.elements() == other.elements()
    assert world.picture() == other.picture()
    last = world.step(Action("wait 61"))
    assert last.terminated or last.truncated
    assert not last.success or name in ("hover-shape", "chase-circle")
    world.close()
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(filter(pages.can_begin_again, pages.names())))
def test_a_used_page_begins_as_one_that_was_loaded(name: str) -> None:
    used, fresh = MiniWob(name), MiniWob(name)
    for index in range(4):
        task, rng = tasks(f"miniwob/{name}").task(Split.VALIDATION, index), random.Random(index)
        fresh.close()
        assert used.reset(task) == fresh.reset(task)
        assert used.picture() == fresh.picture()
        for _ in range(3):
            action = fresh.sample_action(rng)
            assert used.step(action) == fresh.step(action)
            assert used.elements() == fresh.elements()
    used.close()
    fresh.close()


def begun(name: str, index: int = 0) -> MiniWob:
    world = MiniWob(name)
    world.reset(tasks(f"miniwob/{name}").task(Split.TRAIN, index))
    return world


def test_a_wrong_click_fails_and_the_right_one_succeeds() -> None:
    world = begun("click-test-2")
    (right,) = world.oracle()
    one, two = (element for element in world.elements() if element.role == "button")
    assert right.text == f"click [{one.id}]"
    wrong = world.step(Action(f"click [{two.id}]"))
    assert wrong.terminated and not wrong.success and wrong.reward == -1.0
    assert not world.step(right).valid
    world.reset(tasks("miniwob/click-test-2").task(Split.TRAIN, 0))
    solved = world.step(right)
    assert solved.success and solved.reward == 1.0
    world.close()


def test_a_gesture_of_a_larger_web_is_refused_in_words() -> None:
    world = begun("click-test")
    before = world.state_key()
    for line, said in (("go 'http://x/'", "no use on this page"), ("click [99]", "no element")):
        refused = world.step(Action(line))
        assert not refused.valid and said in refused.observation.text
    assert world.state_key() == before
    assert world.step(Action("give up")).terminated
    world.close()


def test_capabilities_are_known_before_a_browser_runs() -> None:
    assert Capability.ORACLE in MiniWob.spec_of("click-button").capabilities
    assert Capability.ORACLE not in MiniWob.spec_of("tic-tac-toe").capabilities
    assert Capability.ORACLE in MiniWob.spec_of("basic").capabilities
    assert {*MiniWob.names()} > {*MIXTURES, *names()} and len(names()) == 130
    with pytest.raises(InputError, match="take no parameters"):
        MiniWob("click-test").reset(Task("x", "miniwob/click-test", 1, parameters={"a": 1}))


def test_a_mixture_has_all_its_pages_each_solved_by_the_expert() -> None:
    assert not set(MIXTURES["basic"]) & set(MIXTURES["basic-challenge"])
    world = MiniWob("basic")
    for index in range(4):
        world.reset(tasks("miniwob/basic").task(Split.TEST, index))
        for action in world.oracle():
            last = world.step(action)
        assert last.success
    world.close()
    for name, known in MIXTURES.items():
        seeds = [tasks(f"miniwob/{name}").task(Split.TEST, i).seed for i in range(300)]
        seen = Counter(of_task(name, seed) for seed in seeds)
        assert set(seen) == set(known) <= set(SOLVERS)
        most, least = max(seen.values()), min(seen.values())
        assert most > 4 * least if name == "basic-skewed" else most < 4 * least


def test_the_solver_has_no_plan_for_what_it_does_not_understand() -> None:
    assert plan("click-button", Page("Click something.", ())) == []


def test_an_expert_solves_a_page_through_the_front_door(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options: dict[str, Any] = {"model": "expert", "n": 2, "run": run, "progress": False}
    found = pa.evaluate("miniwob/click-checkboxes?observation=tree", **options)
    assert found.success == 1.0 and found.complete
