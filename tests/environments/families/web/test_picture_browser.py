"""The pages of apps in a real browser: the same words, fields and verdicts as read as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from palaestra.core.environment import Action, Environment
from palaestra.core.message import Image
from palaestra.core.rare_capabilities import elements_of, picture_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.web.environment import Web
from tests.browser.needed import browser_missing

pytestmark = pytest.mark.slow
if why := browser_missing():
    pytest.skip(why, allow_module_level=True)


def words(observation: str) -> list[str]:
    """The lines of a page, without ids and without what only a real browser knows."""
    plain = re.sub(r"\[\d+\] ", "", observation)
    return re.sub(r", (focused|collapsed|expanded)", "", plain).splitlines()


@pytest.fixture
def real() -> Iterator[Web]:
    env = Web("easy:browser")
    yield env
    env.close()


@pytest.mark.parametrize("number", range(12))
def test_a_task_is_the_same_task_read_as_text(real: Web, number: int) -> None:
    text = Web("easy")
    task = registry.tasks("web/easy").task(Split.TEST, number)
    seen = words(real.reset(task).text)
    assert seen == words(text.reset(task).text)
    for action in text.oracle():
        there, here = real.step(action), text.step(action)
        assert there.valid and words(there.observation.text) == words(here.observation.text)
    assert there.success and here.success


def test_a_picture_shows_what_the_elements_say(real: Web) -> None:
    task = registry.tasks("web/easy").task(Split.TEST, 0)
    real.reset(task)
    before = picture_of(real)
    assert Image.of(before).media_type == "image/png"
    link = next(one for one in elements_of(real) if one.name == "Mail" and one.role == "link")
    assert link.box is not None
    x, y = link.box.centre
    real.step(Action(f"click ({round(x)}, {round(y)})"))
    assert real._browser.url == "http://mail.example/"
    assert picture_of(real) != before
    real.reset(task)
    assert picture_of(real) == before


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    made: list[Environment] = []

    def new() -> Environment:
        made.append(registry.make("web/easy:browser"))
        return made[-1]

    try:
        clause(Subject(new, registry.tasks("web/easy:browser"), steps=6))
    finally:
        for env in made:  # the browser ends with the last of them
            env.close()
