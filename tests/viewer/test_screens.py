"""The screen of a turn: its picture with boxes and the gesture's point, before and after."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import ClassVar

import numpy
import pytest
from starlette.testclient import TestClient

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.element import Box, Element
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Image, assistant
from palaestra.core.rare_capabilities import Elemental, Pictured
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.families.web.picture_browser import SIZE
from palaestra.environments.shared.png_images import png
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.screens import turn_screens
from tests.browser.needed import browser_missing
from tests.viewer.browser import chromium, entered, served
from tests.viewer.stores import client_of

PANEL = "tests.viewer.test_screens:Panel"
SCREEN = "/run/panel/screen/test/0.0?turn="


class Panel(Environment, Elemental, Pictured, capabilities=("elements", "picture")):
    """A panel of two lamps; a click on the second one ends the task."""

    instructions = "Switch on the right lamp."
    lies: ClassVar[bool] = False  # whether it shows something else than when it was recorded

    def reset(self, task: Task) -> Observation:
        self._lit = False
        return Observation("A panel <now>.")

    def step(self, action: Action) -> Transition:
        if action.text.startswith("kick"):
            return Transition(Observation("A panel takes no kicks."), valid=False)
        self._lit = True
        done = "(60" in action.text
        seen = "It is dark." if self.lies else "It is lit."
        return Transition(Observation(seen), float(done), terminated=done, success=done)

    def elements(self) -> list[Element]:
        lamps = (Element("1", "button", "left", box=Box(10, 10, 20, 20), parent="0"),)
        lamps += (Element("2", "button", "<right>", box=Box(50, 10, 20, 20), parent="0"),)
        return [Element("0", "main", "panel", box=Box(0, 0, 80, 40)), *lamps]

    def picture(self) -> bytes:
        return png(numpy.full((40, 80, 3), 250 if self._lit else 30, numpy.uint8))

    def caption(self) -> str:
        return ""


def recorded(environment: str, *actions: str) -> Episode:
    """An episode of these actions."""
    task = registry.tasks(environment).task(Split.TEST, 0)
    models = {"agent": ScriptedModel([assistant(action) for action in actions])}
    env = LocalEnvironment(registry.make(environment))
    budget = Budget(turns=len(actions))
    session = Session(Key("test", 0), task, env, make_agent("direct"), models, budget=budget)
    try:
        return asyncio.run(session.run())
    finally:
        asyncio.run(env.close())


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    with RunFolder.create(tmp_path / "panel", {"summary": "a panel"}) as run:
        run.database.finish(recorded(PANEL, "click 'left'", "kick it", "click (60, 20)"))
    return client_of(tmp_path)


def test_boxes_and_the_point_of_a_gesture_are_where_the_elements_are() -> None:
    screens = turn_screens(recorded(PANEL, "click 'left'"), 0)
    before, after = screens.before, screens.after
    assert before.size == (80, 40)
    assert [(b.x, b.y, b.width, b.target) for b in before.boxes] == [
        (10, 10, 20, True),
        (50, 10, 20, False),
    ]
    assert before.boxes[0].about == "#1 [1] button 'left'"
    assert before.points == ((20, 20),)
    assert after is not None and after.points == () and not any(b.target for b in after.boxes)
    assert before.url == Image.of(png(numpy.full((40, 80, 3), 30, numpy.uint8))).url
    assert after.url != before.url


@pytest.mark.parametrize(
    ("environment", "action", "points"),
    [
        (PANEL, "drag [1] to (0.5, 0.5)", ((20, 20), (40, 20))),
        (PANEL, "click [9]", ()),
        (PANEL, "click (500, 3)", ()),
        (PANEL, "wait 2", ()),
        (f"{PANEL}?dialect=pyautogui", "pyautogui.click(12, 14)", ((12, 14),)),
        (f"{PANEL}?dialect=androidworld", '{"action_type": "click", "index": 2}', ((60, 20),)),
    ],
)
def test_points_of_other_gestures(
    environment: str, action: str, points: tuple[tuple[float, float], ...]
) -> None:
    assert turn_screens(recorded(environment, action), 0).before.points == points


def test_a_turn_links_to_its_screen_if_its_action_is_a_gesture(client: TestClient) -> None:
    turns = client.get("/run/panel/episode/test/0.0").text
    assert re.findall(r'href="[^"]*/screen/test/0\.0\?turn=(\d)"', turns) == ["1", "3"]


def test_a_page_shows_both_pictures_and_escapes_names(client: TestClient) -> None:
    first, last = (client.get(f"{SCREEN}{turn}").text for turn in (1, 3))
    assert first.count("<img ") == last.count("<img ") == 2
    assert first.count('class="box target"') == 1 and '<circle class="point" cx="20' in first
    assert "button &#39;&lt;right&gt;&#39;" in last and "<right>" not in last
    assert 'class="box target"' not in last and '<circle class="point" cx="60' in last
    invalid = client.get(f"{SCREEN}2").text
    assert "A panel takes no kicks." in invalid and 'class="point"' not in invalid


def test_what_cannot_be_shown_is_said(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get(f"{SCREEN}4").status_code == client.get(f"{SCREEN}0").status_code == 404
    monkeypatch.setattr(Panel, "lies", True)
    changed = client.get(f"{SCREEN}3")
    assert changed.status_code == 409 and "cannot be replayed" in changed.text


def test_an_environment_without_pictures_has_no_screens(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "panel", {"summary": "read as text"}) as run:
        run.database.finish(recorded("web/easy", "click 'Mail'"))
    client = client_of(tmp_path)
    assert "/screen/" not in client.get("/run/panel/episode/test/0.0").text
    assert "no pictures" in client.get(f"{SCREEN}1").text


@pytest.mark.slow
@pytest.mark.skipif(bool(browser_missing()), reason=browser_missing() or "")
def test_the_page_of_a_real_browser_fits_its_boxes(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "panel", {"summary": "a real browser"}) as run:
        run.database.finish(recorded("web/easy:browser", "click 'Mail'"))
    with served(tmp_path) as address, chromium() as browser:
        tab = entered(browser.new_page(viewport={"width": 1200, "height": 900}), address)
        tab.goto(f"{address}{SCREEN}1")
        target, point = (tab.locator(f"svg .{kind}").first for kind in ("target", "centre"))
        assert "link 'Mail'" in target.locator("title").text_content()
        box, at, picture = target.bounding_box(), point.bounding_box(), tab.locator("img").first
        assert box["x"] <= at["x"] and at["x"] + at["width"] <= box["x"] + box["width"]
        assert box["y"] <= at["y"] and at["y"] + at["height"] <= box["y"] + box["height"]
        assert picture.evaluate("i => i.complete && i.naturalWidth") == SIZE[0]
