"""Tasks of BrowserGym are environments here: its browser, our gestures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from palaestra.core.environment import Action, Environment
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.rare_capabilities import caption_of, elements_of, picture_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from tests.browser.needed import browser_missing

if find_spec("browsergym") is None or find_spec("miniwob") is None:
    pytest.skip("needs requirements/browsergym.txt", allow_module_level=True)
if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.slow
ENTER = "browsergym/miniwob.enter-text"


@pytest.fixture
def begun() -> Iterator[Environment]:
    world = registry.make(ENTER)
    world.reset(registry.tasks(ENTER).task(Split.TEST, 0))
    yield world
    world.close()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of("browsergym/miniwob.click-test", 2, per_split=1), clause)
    assert not finding.broken, finding.broken


@pytest.mark.parametrize("end", ["", " clear", " enter", " clear enter"])
def test_gestures_become_its_actions(begun: Environment, end: str) -> None:
    found = re.search('"(.*)"', caption_of(begun))
    assert found is not None
    typed = begun.step(Action(f"type 'textbox' '{found[1]}'{end}"))
    assert typed.valid and not typed.terminated
    assert next(one for one in elements_of(begun) if one.role == "textbox").value == found[1]
    last = begun.step(Action("click 'Submit'"))
    assert last.success and last.reward == 1.0


def test_its_own_actions_are_a_dialect() -> None:
    id = "browsergym/miniwob.click-test?dialect=browsergym"
    world = registry.make(id)
    world.reset(registry.tasks(id).task(Split.TEST, 1))
    (button,) = (one for one in elements_of(world) if one.role == "button")
    assert picture_of(world).startswith(b"\x89PNG")
    assert world.step(Action(f"click('{button.id}')")).success
    world.close()


def test_an_error_of_its_own_is_said_and_the_episode_goes_on(begun: Environment) -> None:
    refused = begun.step(Action("click [999]"))
    assert not refused.valid and "no element" in refused.observation.text
    wrong = begun.step(Action("select 'textbox' 'Red'"))
    assert wrong.valid and not wrong.terminated and "Error" in caption_of(begun)


def test_what_it_has_not_is_refused_before_it_starts() -> None:
    with pytest.raises(UnknownName, match="chess"):
        registry.spec("browsergym/miniwob.chess")
    with pytest.raises(MissingPackage, match="pip install browsergym-webarena"):
        registry.spec("browsergym/webarena.1")
    with pytest.raises(InputError, match="names no task"):
        registry.spec("browsergym")
