"""Real gestures do the challenges in the browser; nothing else gives a code that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palaestra.browser.installation import browser_program
from palaestra.cli.own_browser import served
from palaestra.core.environment import Action
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.challenges.challenge import code_of
from palaestra.environments.families.challenges.challenge_registry import CHALLENGES
from palaestra.environments.families.challenges.environment import Challenges, site_of
from palaestra.environments.registry import tasks
from tests.browser.needed import browser_missing

if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

FAST = ("second-tab", "receipt")
LOOK = ("arithmetic", "odd-colour", "clock", "colour-mix", "connect-dots", "maze", "simon")
"""Whose first page has equal elements in all tasks: what differs is in the picture alone."""
TELLING = {"second-tab": ("click 'Open the note'", "tab 0"), "inbox": ("click 'The ",)}
"""Gestures that only tell what the reference knows: the proof holds without them."""


def by_challenge(fast: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    marked = [
        pytest.param(name, marks=() if name in fast else pytest.mark.slow) for name in CHALLENGES
    ]
    return pytest.mark.parametrize("name", marked)


def task(name: str, index: int, split: Split = Split.TEST) -> Task:
    return tasks(f"challenges/{name}").task(split, index)


def source(world: Challenges) -> str:
    """All that the page holds, as HTML and as elements."""
    session = world._here()
    return f"{session.tab.evaluate('document.documentElement.outerHTML')} {session.elements()}"


@by_challenge(FAST)
def test_the_reference_ends_with_a_code_that_was_nowhere_before(name: str) -> None:
    world = Challenges(name)
    for index in range(1 if name in FAST else 4):
        world.reset(task(name, index))
        *plan, answer = world.oracle()
        code = world.site.code
        assert code not in source(world) and answer.text == f"answer '{code}'"
        for action in plan:
            assert not world.site.solved
            step = world.step(action)
            assert step.valid, f"{action.text}: {step.observation.text}"
        assert code in step.observation.text and world.oracle() == [answer]
        last = world.step(answer)
        assert last.success and last.terminated and last.reward == 1.0
    world.close()


@by_challenge(FAST[:1])
def test_other_codes_fail_and_the_right_one_does_unless_the_page_gave_it(name: str) -> None:
    world = Challenges(name)
    one, other = task(name, 0), task(name, 1)
    for line, solve in (
        (f"answer '{code_of(name, one.seed)}'", False),  # guessed, with nothing done
        (f"answer '{code_of(name, other.seed)}'", True),  # of another task
        ("answer ''", True),
        ("give up", True),
    ):
        world.reset(one)
        for action in world.oracle()[:-1] if solve else ():
            world.step(action)
        last = world.step(Action(line))
        assert last.terminated and not last.success and last.reward == 0.0
        assert last.info == {"shown": solve}
    world.close()


@by_challenge()
def test_without_one_of_its_gestures_the_reference_gives_no_code(name: str) -> None:
    world = Challenges(name)
    world.reset(task(name, 2))
    plan = world.oracle()[:-1]
    for left_out, action in enumerate(plan):
        if action.text.startswith(TELLING.get(name, ("-",))):
            continue
        world.reset(task(name, 2))
        for other in [*plan[:left_out], *plan[left_out + 1 :]]:
            world.step(other)
        assert not world.site.solved, action.text
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOK)
def test_only_the_picture_tells_what_only_a_look_decides(name: str) -> None:
    world = Challenges(name)
    found, pictures = set(), set()
    for index in range(4):
        world.reset(task(name, index))
        found.add(world.elements())
        pictures.add(world.picture())
    assert len(found) == 1
    assert len(pictures) == (1 if name == "simon" else 4)  # simon's pads light up later
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["pop-up", "word-flash", "receipt", "maze", "all"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of(f"challenges/{name}", steps=5, per_split=1), clause)
    assert not finding.broken, finding.broken


def test_a_reference_that_was_left_begins_again_unless_no_tries_are_left() -> None:
    world = Challenges("arithmetic")
    world.reset(task("arithmetic", 0))
    first, *_ = world.oracle()
    world.step(Action("type 'Result' '0' enter"))
    again = world.oracle()
    assert again[0].text.startswith("go ") and again[1] == first
    for _ in range(5):
        world.step(Action("click 'Check'"))
    assert world.oracle() == []
    world.close()


@pytest.mark.slow
def test_a_download_is_told() -> None:
    world = Challenges("receipt")
    world.reset(task("receipt", 0))
    step = world.step(world.oracle()[0])
    assert step.observation.text.startswith("Downloaded 'receipt-")
    assert world.caption().startswith("Downloaded")
    world.close()


@pytest.mark.slow
def test_challenges_work_in_an_ordinary_browser_in_real_time() -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    dialogs, upload = site_of(task("dialogs", 0)), site_of(task("upload", 0))
    decision, typed = dialogs.challenge.plan[2:]
    name = next(name for name in upload.challenge.files if name in upload.challenge.plan[0])

    def answer(dialog: Any) -> None:
        if dialog.type == "confirm" and "OK" not in decision:
            dialog.dismiss()
        else:
            dialog.accept(typed.split("'")[1])

    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=browser_program(), args=["--no-sandbox"])
        page = browser.new_page()
        page.on("dialog", answer)
        with served(dialogs, 0) as address:
            page.goto(address)
            page.get_by_text("Begin", exact=True).click()
            page.get_by_text(f"Completion code: {dialogs.code}").wait_for(timeout=5000)
        with served(upload, 0) as address:
            page.goto(address)
            file = {"name": name, "mimeType": "text/plain", "buffer": upload.challenge.files[name]}
            page.set_input_files("input", file)
            page.get_by_text("Send", exact=True).click()
            page.get_by_text(f"Completion code: {upload.code}").wait_for(timeout=5000)
        browser.close()
