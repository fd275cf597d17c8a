"""Games on pages: who acted, what happened at the same time, forfeits, and each player's return."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.run_folder import RunFolder
from tests.core.games import Ring, Tally
from tests.viewer.browser import chromium, entered, served
from tests.viewer.stores import client_of

GAME = f"{Tally.__module__}:Tally"
RECIPE = {"command": "eval", "summary": "numbers", "environment": GAME, "agent": "players"}
PLANS = (
    {"ann": "1", "bob": "2", "cat": "3"},
    {"ann": "3", "bob": "3", "cat": "2"},
    {"ann": "2", "bob": "what?", "cat": "2"},  # bob forfeits
)


def play(task: int, member: int, plan: dict[str, str], *, ring: bool = False) -> Episode:
    models = {who: ScriptedModel(lambda m, word=word: word, name=who) for who, word in plan.items()}
    session = Session(
        Key("eval/test", task, member),
        TaskSet(GAME).task(Split.TEST, task),
        LocalEnvironment(Ring() if ring else Tally()),
        PlayersAgent(),
        models,
        budget=Budget(invalid_actions=2),
    )
    return asyncio.run(session.run())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    with RunFolder.create(root / "games", RECIPE) as run:
        for task in range(2):
            for member, plan in enumerate(PLANS):
                run.database.finish(play(task, member, plan))
        run.database.finish(play(2, 0, PLANS[2], ring=True))
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> TestClient:
    return client_of(root)


def read(client: TestClient, path: str) -> str:
    """Return a page once all its numbers are there."""
    end = time.monotonic() + 20
    while "data-pending" in (page := client.get(path).text) and time.monotonic() < end:
        time.sleep(0.05)
    return page


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def main_part(page: str) -> str:
    return page[page.index("<main") :]


def test_a_turn_names_its_player_and_marks_moves_of_the_same_round(client: TestClient) -> None:
    page = client.get("/run/games/episode/eval/test/0.0").text
    heads = [words(head) for head in re.findall(r"<h2><a href.*?</h2>", page)]
    assert heads == [
        *("1 ann", "2 bob ⇉ same round", "3 cat ⇉ same round"),
        *("4 ann", "5 bob ⇉ same round", "6 cat ⇉ same round"),
        *("7 ann", "8 bob ⇉ same round", "9 cat ⇉ same round"),
    ]
    shown = words(page)
    assert "cat, round 4" in shown and "ann sees ann, round 4" in shown  # what each sees at the end


def test_results_of_each_player_stand_above_the_turns(client: TestClient) -> None:
    page = client.get("/run/games/episode/eval/test/0.0").text
    results = re.search(r'<ul class="players".*?</ul>', page, re.DOTALL)
    assert results is not None and results.start() < page.index('id="turn-1"')
    assert words(results[0]) == (
        "ann return +3 3 turns bob return +6 3 turns cat return +9 3 turns"
    )
    assert "success" not in words(main_part(page)) and "✓" not in page and "✗" not in page
    assert "The end: ann +3, bob +6, cat +9 after 9 turns" in words(page)


def test_a_forfeit_is_shown_with_its_reason_and_the_returns_that_follow(
    client: TestClient,
) -> None:
    page = words(client.get("/run/games/episode/eval/test/0.2").text)
    assert "bob return -5 2 turns, 2 invalid forfeited: unparsed" in page
    assert "bob forfeits: unparsed; returns ann +0, bob -5, cat +0" in page
    went_on = client.get("/run/games/episode/eval/test/2.0").text
    assert "bob forfeits: unparsed; returns bob -5" in words(went_on)
    assert len(re.findall(r'id="turn-\d+"', went_on)) == 11  # the others play on


def test_lists_show_returns_in_place_of_success(client: TestClient) -> None:
    for page in ("/", "/run/games", "/evaluation?run=games"):
        found = main_part(read(client, page))
        row = next(r for r in re.findall(r"<tr>.*?</tr>", found, re.DOTALL) if "+" in r)
        assert re.search(r"ann \+\d\.\d\d, bob [+-]\d\.\d\d, cat \+\d\.\d\d", words(row)), page
        assert not re.search(r"\d\.\d %", words(row)), page
    run = words(read(client, "/run/games"))
    assert "3 × unparsed" in run and "palaestra ratings" not in run  # one policy plays all


def test_the_table_of_episodes_has_the_return_of_each_player(client: TestClient) -> None:
    rows = json.loads(client.get("/run/games/episodes.json").text)["rows"]
    assert rows[0]["cells"][3] == "ann +3, bob +6, cat +9" and rows[0]["kind"] == "none"
    assert rows[2]["cells"][3] == "ann +0, bob -5 (forfeit), cat +0"
    assert "ann +3, bob +6, cat +9" in words(client.get("/run/games/episodes").text)


def test_a_group_has_a_row_for_each_player(client: TestClient) -> None:
    page = client.get("/run/games/group/eval/test/0").text
    sums = [words(row) for row in re.findall(r'<tr class="sums">.*?</tr>', page, re.DOTALL)]
    assert sums[:3] == [
        "ann +3.00 +0.00 +0.00",
        "bob +6.00 +0.00 -5.00 forfeit",
        "cat +9.00 +6.00 +0.00",
    ]
    assert "3 played by ann, bob, cat" in words(page) and "solved" not in words(main_part(page))


def test_two_policies_in_games_are_not_compared_by_success(client: TestClient) -> None:
    found = client.get("/versus?a=games:eval/test&b=games:eval/test").text
    assert "is a game between players, which has no success to compare" in words(found)


# ── in a browser ─────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root) as found:
        yield found


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_of_games_fit_the_window(browser: Any, address: str, width: int) -> None:
    page = entered(browser.new_page(viewport={"width": width, "height": 900}), address)
    for path in (
        "/run/games/episode/eval/test/0.2?turn=2",
        "/run/games/episode/eval/test/2.0",
        "/run/games",
    ):
        page.goto(f"{address}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, path
    page.goto(f"{address}/run/games/episode/eval/test/0.2")
    box = page.locator("ul.players").bounding_box()
    first = page.locator("#turn-1").bounding_box()
    assert box["y"] + box["height"] <= first["y"] and box["x"] + box["width"] <= width
    page.close()
