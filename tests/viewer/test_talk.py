"""Who said what to whom, on the pages of an episode and of a run, and in the terminal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from palaestra.agents.players import PlayersAgent
from palaestra.api.evaluating import evaluate
from palaestra.cli.main import main
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.environments.channels.talking import Messages
from palaestra.evaluation.statistics.conversation import Conversation, Line, Move, conversation
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.sequence_chart import ROWS, sequence_chart
from palaestra.viewer.speech_graph import speech_graphs
from tests.core.games import Tally
from tests.viewer.browser import Watch, chromium, entered, served
from tests.viewer.recorded_runs import stairs_run
from tests.viewer.stores import HOSTILE, client_of
from tests.viewer.test_game_pages import read, words

GAME = f"{Tally.__module__}:Tally"
RECIPE = {"command": "eval", "summary": "talk", "environment": GAME, "agent": "players"}
SAID = {
    "ann": ["send_message(to='bob', text='take 2, I take 3')", "3"],
    "bob": ["2", "send_message(to='all', text='<b>yes</b>')", "2"],
}


def play(said: dict[str, list[str]], otherwise: str = "1", turns: int = 40) -> Episode:
    def model(name: str) -> ScriptedModel:
        left = list(said.get(name, ()))
        return ScriptedModel(lambda _: left.pop(0) if left else otherwise, name=name)

    session = Session(
        Key("eval/test", 0),
        TaskSet(GAME).task(Split.TEST, 0),
        LocalEnvironment(Messages(Tally(), "all")),
        PlayersAgent(),
        {name: model(name) for name in ("ann", "bob", "cat")},
        budget=Budget(turns=turns),
    )
    return asyncio.run(session.run())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    with RunFolder.create(root / "talk", RECIPE) as run:
        run.database.finish(play(SAID))
        long = replace(play({}, "send_message(to='cat', text='hm')", 450), key=Key("long", 0))
        run.database.finish(long)
        for step in play(SAID).steps[:3]:
            run.database.append(Key("open", 0), step)
    reader = "reader?right=0.5&recall=0.8&false=0.1"
    evaluate("questions/things-2", team="review", model=reader, n=4, run=root / "team")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> TestClient:
    return client_of(root)


def rows(page: str) -> list[str]:
    return [words(row) for row in re.findall(r'<li class="step.*?</li>', page, re.DOTALL)]


def test_a_row_for_each_step_says_who_was_shown_it_and_when(client: TestClient) -> None:
    page = client.get("/run/talk/episode/eval/test/0.0").text
    assert rows(page)[:2] == ["1 ann sent on all: take 2, I take 3 → bob (5)", "2 ann acted: 3"]
    said = next(row for row in rows(page) if "yes" in row)
    assert said == "6 bob sent on all: <b>yes</b> → ann (9), cat (9)"
    assert "<b>yes</b>" not in page  # it is text
    assert "2 lines for others in 11 turns" in words(page)
    table = re.search(r'<table class="members">.*?</table>', page, re.DOTALL)
    assert table is not None
    assert "bob 4 0 0 1 17 % 1 acted 3, sent messages 1 all 1 (10 bytes)" in words(table[0])


def test_a_team_s_decision_stands_across_all_columns(client: TestClient) -> None:
    page = client.get("/run/team/episode/eval/test/0.0").text
    found = rows(page)
    assert re.match(r"1 author proposed: (red|blue) (big|small) → reviewer \(2\)", found[0])
    assert found[-1].startswith("the environment takes: ")
    band = [row for row in re.findall(r'<li class="step.*?</li>', page) if 'class="band"' in row]
    assert len(band) == 1 and 'class="step environment"' in band[0]
    assert "author to reviewer" in page  # the graph's title


def test_a_long_episode_shows_a_part_of_its_steps(client: TestClient) -> None:
    page = client.get("/run/talk/episode/long/0.0").text
    assert len(rows(page)) == ROWS and "201 to 400" in words(page)
    later = client.get("/run/talk/episode/long/0.0?steps=401").text
    assert rows(later)[0].startswith("401 ") and len(rows(later)) == 50
    around = client.get("/run/talk/episode/long/0.0?turn=250").text
    assert rows(around)[0].startswith("201 ")


def test_an_episode_in_progress_shows_what_was_said_so_far(client: TestClient) -> None:
    page = client.get("/run/talk/episode/open/0.0").text
    assert rows(page)[0] == "1 ann sent on all: take 2, I take 3 never shown to bob"
    assert len(rows(page)) == 3 and 'data-live="/run/talk/live.json"' in page


def test_pages_of_single_players_have_no_chart(tmp_path: Path) -> None:
    stairs_run(tmp_path, tasks=1)
    page = client_of(tmp_path).get("/run/stairs/episode/eval/test/0.0").text
    assert "Who said" not in page


def test_a_run_shows_shares_of_speech_and_messages_by_channel(
    client: TestClient, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = words(read(client, "/run/talk"))
    assert "eval/test mean share of speech ann 83 %, bob 17 %, cat 0 %" in page
    assert "eval/test messages by channel all 2 (26 bytes)" in page
    assert main(["show", str(root / "talk")]) == 0
    assert "eval/test: mean share of speech: ann 83 %, bob 17 %" in capsys.readouterr().out
    assert main(["show", str(root / "talk"), "eval/test/0.0"]) == 0
    printed = capsys.readouterr().out
    assert "bob: acted 3, sent messages 1; sent: all 1 (10 bytes)" in printed


def test_a_team_s_evaluation_reports_shares_of_speech(root: Path) -> None:
    with RunFolder.read(root / "team") as opened:
        episodes = opened.database.episodes("eval/test")
        found = opened.database.get("evaluation")
    shares = [conversation(episode).members["author"].share for episode in episodes]
    known = [share for share in shares if share is not None]
    assert found["talk"]["shares"]["author"] == pytest.approx(sum(known) / len(known))


def test_graphs_of_thirds_are_drawn_if_others_spoke_in_them() -> None:
    def talking(*pairs: tuple[str, str]) -> Conversation:
        moves = tuple(Move(n, a, "talk", "x", None) for n, (a, _) in enumerate(pairs))
        said = tuple(Line(n, a, "talk", "x", shown={b: n}) for n, (a, b) in enumerate(pairs))
        return Conversation(("a", "b", "c"), moves, said, {})

    same = speech_graphs(talking(*[("a", "b")] * 6))
    assert [title for title, _ in same] == ["all turns"] and "a to b 6" in same[0][1]
    changed = speech_graphs(talking(*[("a", "b")] * 4, *[("b", "c")] * 2))
    assert [title for title, _ in changed[1:]] == ["turns 1 to 2", "turns 3 to 4", "turns 5 to 6"]
    assert "b to c 2" in changed[3][1] and "b to c" not in changed[1][1]
    assert speech_graphs(talking()) == []


@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_no_text_of_an_episode_is_markup(text: str) -> None:
    said = Line(0, text, "talk", text, shown={"b": 0})
    found = Conversation((text, "b"), (Move(0, text, "talk", text, text),), (said,), {})
    drawn = sequence_chart(found, lambda step: f"#{step}") + speech_graphs(found)[0][1]
    tags = set(re.findall(r"</?([a-z]+)", drawn))
    assert tags <= {*("div", "ol", "li", "a", "b", "q", "span", "svg"), *("text", "line", "path"),
                    *("circle", "rect", "title")}  # fmt: skip
    assert "\u202e" not in drawn and "\x1b" not in drawn and 'onerror="' not in drawn


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
@pytest.mark.parametrize("width", [1280, 420])
def test_charts_fit_the_window_and_their_rows_meet(browser: Any, address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    watch = Watch(page, address)
    entered(page, address)
    for path in ("/run/talk/episode/eval/test/0.0", "/run/team/episode/eval/test/0.0"):
        page.goto(f"{address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        gaps = page.evaluate(
            """() => [...document.querySelectorAll(".step")].map((row) => [
                row.getBoundingClientRect().bottom,
                row.querySelector("svg").getBoundingClientRect().bottom,
                row.querySelector(".what").getBoundingClientRect().width])"""
        )
        assert gaps and all(low <= drawn for low, drawn, _ in gaps)  # no column is broken
        assert all(room >= 140 for *_, room in gaps)  # its words have room
    assert watch.complaints == []
    page.close()


@pytest.mark.slow
def test_the_chart_of_an_episode_in_progress_grows_without_a_reload(
    browser: Any, address: str, root: Path
) -> None:
    with RunFolder.read(root / "talk") as opened:
        (episode,) = opened.database.episodes("eval/test")
    page = browser.new_page()
    entered(page, address)
    with RunFolder.create(root / "live", RECIPE) as run:
        for step in episode.steps[:2]:
            run.database.append(Key("rl/1", 0), step)
        page.goto(f"{address}/run/live/episode/rl/1/0.0")
        assert page.locator("li.step").count() == 2
        for step in episode.steps[2:5]:
            run.database.append(Key("rl/1", 0), step)
        page.wait_for_selector("li.step:nth-child(5)", timeout=20_000)
    page.close()
