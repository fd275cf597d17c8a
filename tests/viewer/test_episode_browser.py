"""The pages of episodes in a real browser: keys, colours, more turns, nothing from elsewhere."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.app import application
from palaestra.viewer.site import Site
from tests.viewer.recorded_runs import BROWSER, RECIPE, Saying, long_run, scripted, stairs_run
from tests.viewer.stores import HOSTILE, TOKEN

uvicorn = pytest.importorskip("uvicorn", reason="the viewer's server is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a viewer over real runs."""
    root: Path = tmp_path_factory.mktemp("runs")
    stairs_run(root)
    long_run(root)
    with RunFolder.create(root / "bad", RECIPE) as run:
        output = [text.replace("\x00", "") for text in HOSTILE]
        run.database.finish(scripted(Key("eval/test", 0), output, Saying(HOSTILE)))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(Site(root), TOKEN), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def chromium(site: str) -> Iterator[Any]:
    """After the site: its runs need asyncio, whose loop Playwright occupies."""
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, site: str) -> Iterator[Any]:
    """A page that must log no error, and request only the site."""
    context = chromium.new_context(base_url=site, viewport={"width": 1200, "height": 800})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda shown: wrong.append(shown.text) if shown.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    own = (site, "data:")
    opened.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    opened.goto(f"/?token={TOKEN}")
    yield opened
    context.close()
    assert wrong == []


def test_j_and_k_go_from_turn_to_turn_and_the_address_follows(page: Any) -> None:
    page.goto("/run/stairs/episode/eval/test/0.1")
    for key, turn in (("j", "1"), ("j", "2"), ("j", "3"), ("j", "3"), ("k", "2")):
        page.keyboard.press(key)
        playwright.expect(page.locator(".turn.current")).to_have_attribute("data-turn", turn)
    assert re.search(r"turn=2&.*#turn-2$", page.url)


def test_t_changes_the_colours_and_d_shows_what_changed(page: Any) -> None:
    page.goto("/run/stairs/episode/eval/test/0.1?colour=logprob")
    token = page.locator("#turn-2 .tokens i").last
    before = token.evaluate("t => getComputedStyle(t).backgroundColor")
    page.keyboard.press("t")
    playwright.expect(page.locator(".episode")).to_have_class(re.compile("colour-entropy"))
    page.keyboard.press("t")
    playwright.expect(page.locator(".episode")).to_have_class(re.compile("colour-advantage"))
    playwright.expect(
        page.locator("#turn-2 .tokens .n1, #turn-2 .tokens .n2").first
    ).to_be_visible()
    assert token.evaluate("t => getComputedStyle(t).backgroundColor") != before
    page.keyboard.press("t")
    page.keyboard.press("t")
    playwright.expect(page.locator("#turn-2 .tokens")).not_to_be_visible()
    page.keyboard.press("d")
    playwright.expect(page.locator("#turn-2 ins")).to_have_text("1")
    assert "diff=1" in page.url
    page.keyboard.press("d")
    playwright.expect(page.locator("#turn-2 ins")).to_have_count(0)


def test_brackets_g_and_e_lead_to_members_the_group_and_the_losing_turn(page: Any) -> None:
    page.goto("/run/stairs/episode/eval/test/0.1")
    page.keyboard.press("]")
    page.wait_for_url("**/eval/test/0.2")
    page.keyboard.press("[")
    page.wait_for_url("**/eval/test/0.1")
    page.keyboard.press("e")
    page.wait_for_url("**lost=invalid#turn-2")
    playwright.expect(page.locator("p.lost")).to_contain_text("first invalid action")
    page.keyboard.press("g")
    page.wait_for_url("**/group/eval/test/0")


def test_letters_typed_into_a_note_are_only_letters(page: Any) -> None:
    page.goto("/run/stairs/episode/eval/test/0.1")
    page.locator("textarea").fill("")
    page.locator("textarea").press_sequentially("jedg?")
    assert page.locator("textarea").input_value() == "jedg?"
    assert page.url.endswith("0.1")
    assert page.locator(".help").get_attribute("open") is None
    page.locator("h1").click()
    page.keyboard.press("?")
    playwright.expect(page.locator(".help")).to_have_attribute("open", "")


def test_scrolling_brings_more_turns_and_lets_go_of_those_far_away(page: Any) -> None:
    page.goto("/run/long/episode/long/0.0")
    for _ in range(60):
        page.mouse.wheel(0, 20_000)
        page.wait_for_timeout(50)
        if page.locator("#turn-1000").count():
            break
    assert page.locator("#turn-1000").count() == 1
    assert page.locator("#turn-1").count() == 0
    assert page.locator(".turn").count() <= 600
    assert page.locator("p.end").is_visible()


def test_what_is_read_stays_while_earlier_turns_come(page: Any) -> None:
    page.goto("/run/long/episode/long/0.0?turn=505#turn-505")
    playwright.expect(page.locator("#turn-401")).to_have_count(1)  # came from above
    top = page.locator("#turn-505").evaluate("t => t.getBoundingClientRect().top")
    assert 0 <= top < 100
    page.keyboard.press("k")
    playwright.expect(page.locator(".turn.current")).to_have_attribute("data-turn", "504")


def test_an_anchor_far_away_is_found(page: Any) -> None:
    page.goto("/run/long/episode/long/0.0#turn-777")
    playwright.expect(page.locator(".turn.current")).to_have_attribute("data-turn", "777")


def test_a_group_shows_advantages_once_they_are_computed(page: Any) -> None:
    page.goto("/run/stairs/group/eval/test/1")
    playwright.expect(page.locator(".move.p5").first).to_be_visible(timeout=30_000)
    page.locator(".move.p5").first.click()
    page.wait_for_url("**/episode/eval/test/1.0?turn=*")


@pytest.mark.parametrize(
    "view", ["episode/eval/test/0.0?colour=logprob&diff=1", "group/eval/test/0"]
)
def test_a_hostile_episode_runs_nothing(page: Any, view: str) -> None:
    page.goto(f"/run/bad/{view}")
    page.keyboard.press("j")
    page.wait_for_timeout(300)
    assert "owned" not in page.title()
    assert page.locator("main img, main script, main svg").count() == 0
    assert page.locator("body").evaluate("b => b.scrollWidth <= innerWidth + 1")


def test_a_comparison_and_an_evaluation_are_readable_without_scripts(
    chromium: Any, site: str
) -> None:
    context = chromium.new_context(base_url=site, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/?token={TOKEN}")
    page.goto("/evaluation?run=stairs")
    assert page.locator(".tile").count() == 2
    page.goto("/run/long/episode/long/0.0?turn=150")
    page.locator(".more.later a").click()
    assert page.locator("#turn-201").count() == 1
    context.close()
