"""Every page answers in words, with and without runs, whatever the runs hold."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from palaestra.core.episode import Key
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.task import Split, Task
from palaestra.evaluation.judges.stored_verdicts import store_verdicts
from palaestra.evaluation.judges.verdict import Verdict
from palaestra.evaluation.running.evaluation_plan import Cell, Plan, as_json
from palaestra.evaluation.statistics.costs import Price, known_money
from palaestra.learning.loop.alarms import Raised, store_alarms
from palaestra.learning.loop.monitors import Alarm
from palaestra.runtime.visible_text import visible
from palaestra.store.notes import Notes, labelled
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder
from palaestra.store.search_index import TextIndex
from palaestra.viewer.app import application
from palaestra.viewer.formatting import money
from palaestra.viewer.site import Site
from tests.store import damaged
from tests.store.samples import python
from tests.viewer.stores import HOSTILE, TOKEN, client_of, make_run, make_training, plain


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "eval-a", [plain(Key("eval/test", i), number=i) for i in range(250)])
    make_training(root, "train-a", learning_rate=0.1)
    make_training(root, "train-b", learning_rate=0.2)
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> TestClient:
    return client_of(root)


def words(page: str) -> str:
    """What a reader sees."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def settled(client: TestClient, address: str) -> str:
    """The page once its figures have come, which a busy machine may take a moment for."""
    end = time.monotonic() + 30
    page = client.get(address).text
    while "data-pending" in page and time.monotonic() < end:
        time.sleep(0.05)
        page = client.get(address).text
    return page


# ── what pages tell ──────────────────────────────────────────────────────────


def test_the_first_page_says_what_each_run_is_and_how_it_did(client: TestClient) -> None:
    text = words(settled(client, "/"))
    # of eval-a, a quarter of 250 broke: 188 scored, 63 of them solved
    assert "eval-a eval babyai/GoTo tiny 250 33.5 %" in text
    assert "train-a train babyai/GoTo" in text and "abacus" in text


def test_an_evaluation_of_many_cells_is_one_mean_or_none(tmp_path: Path) -> None:
    worlds = {"babyai/GoTo": (0.25, 1.0), "babyai/Open": (1.0, 3.0)}  # success and weight
    cells, recorded = [], []
    for agent in ("direct", "react"):
        for world, (rate, weight) in worlds.items():
            phase = f"eval/test/{agent}/m/{world}/seed-0"
            cells.append(
                Cell(
                    phase, world, agent, "m", {}, 0, Split.TEST, tuple(range(8)), 1, 10, 16, 1.0,
                    None, None, weight,
                )
            )  # fmt: skip
            for i in range(8):
                one = plain(Key(phase, i), number=i)
                how = Outcome.success() if i < 8 * rate else Outcome.failure()
                recorded.append(
                    replace(one, outcome=how, task=replace(one.task, environment=world))
                )
    for name, several in (("one", 2), ("two", 4)):
        make_run(tmp_path, name, recorded[: 8 * several])
        with RunFolder.open(tmp_path / name) as run:
            run.database.put("plan", as_json(Plan(tuple(cells[:several]))))
    page = settled(client_of(tmp_path), "/")
    text = words(page)
    assert "32 2 candidates" in text  # no figure of the whole
    assert "16 81.2 %" in text  # (0.25 + 3 * 1) / 4
    assert "mean of 2 environments" in page and "/evaluation?run=two" in page
    matrix = words(client_of(tmp_path).get("/evaluation?run=two").text)
    for number, agent in enumerate(("direct", "react"), 1):  # a row each, with both environments
        row = f"{number} two:eval/test/{agent}/m 25.0 % 7.1 to 59.1 8 tasks; "
        assert row in matrix and "100.0 % 67.6 to 100.0 8 tasks; " in matrix.partition(row)[2]
    offered = client_of(tmp_path).get("/evaluation").text
    assert offered.count('value="two:') == 2


def test_what_calls_cost_stands_where_their_models_have_a_price(tmp_path: Path) -> None:
    make_run(tmp_path, "a", [plain(Key("eval/test", 0))])
    client = client_of(tmp_path)
    assert "money" not in words(client.get("/run/a/episode/eval/test/0.0").text)
    with RunFolder.open(tmp_path / "a") as run:
        (recorded,) = run.database.episodes("eval/test")
        prices = {call.policy: Price(1.0, 2.0) for call in recorded.calls}
        run.database.put("plan", as_json(Plan((), prices=prices)))
        whole = known_money(recorded.calls, prices)
    assert whole is not None and whole > 0
    text = words(client.get("/run/a/episode/eval/test/0.0").text)
    assert f"; money {money(whole)}" in text
    for call in recorded.calls:
        assert f"money {known_money([call], prices):.2g}" in text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("q=train", {"train-a", "train-b"}),
        ("kind=eval", {"eval-a"}),
        ("env=goto&q=-b", {"train-b"}),
        ("q=nothing", set()),
    ],
)
def test_runs_are_filtered_by_the_address(client: TestClient, query: str, shown: set[str]) -> None:
    page = client.get(f"/?{query}").text
    assert set(re.findall(r'href="/run/([\w-]+)"', page)) == shown


def test_runs_are_sorted_by_the_address(client: TestClient) -> None:
    names = re.findall(r'href="/run/([\w-]+)"', client.get("/?sort=-run").text)
    assert names == ["train-b", "train-a", "eval-a"]


def test_a_folder_without_runs_explains_how_to_make_one(tmp_path: Path) -> None:
    assert "palaestra train quick" in client_of(tmp_path).get("/").text
    assert client_of(tmp_path / "gone").get("/").status_code == 200


def test_a_run_shows_results_differences_cost_health_and_recipe(client: TestClient) -> None:
    page = settled(client, "/run/train-a")
    text = words(page)
    assert "test/base 8 0.0 %" in text and "test/rl 8 50.0 %" in text
    assert "rl − base" in text and "+50.0" in text
    assert "rl 3.0 s 20 10 10" in text
    assert "engine_gap" in text and "0.2 nats per token" in text
    assert page.count('<svg class="chart"') >= 5 and "learning_rate" in text
    assert 'href="/run/train-a/episodes?phase=test%2Frl"' in page


def test_each_stage_of_a_recipe_is_a_line_and_no_cell(tmp_path: Path) -> None:
    stages = [
        {"do": "imitate", "from": [{"stage": "a"}], "epochs": 2, "odd": True},
        {"do": "repeat", "rounds": 2, "stages": [{"do": "explore", "tasks": 4}]},
    ]
    make_training(tmp_path, "piped", stage=stages, rl={"steps": 3})
    page = settled(client_of(tmp_path), "/run/piped")
    lines = re.search(r'<pre class="stages">(.*?)</pre>', page, re.DOTALL)
    assert lines is not None and unescape(lines[1]).splitlines() == [
        'imitate  from = "a", epochs = 2, odd = true',
        "repeat  rounds = 2",
        "  explore  tasks = 4",
    ]
    keys = re.findall(r"<th scope=\"row\"><code>(.*?)</code>", page)
    assert "environment.id" in keys and not {"stage", "rl.steps"} & set(keys)


def test_a_run_on_a_cluster_shows_who_is_where_and_why_one_is_gone(tmp_path: Path) -> None:
    make_training(tmp_path, "train-a", learning_rate=0.1)
    assert "Processes on Ray" not in client_of(tmp_path).get("/run/train-a").text
    roster = Roster()
    roster.join("worker", 1, "node-<a>", 101)
    roster.join("worker", 2, "node-b", 102)
    roster.join("engine", 1, "node-b", 103)
    roster.join("learner", 1, "node-c", 104)
    roster.join("copy", 1, "node-d", 105)
    roster.count("worker", 1)
    roster.entries[0].load = 5
    roster.leave("worker", 2, "status -9 <b>", moved=3, died=True)
    with RunFolder.open(tmp_path / "train-a") as run:
        roster.store(run.database)
        text = words(client_of(tmp_path).get("/run/train-a").text)
    assert "Processes on Ray 4 up, 1 died, 0 late messages refused" in text
    assert re.search(r"worker 1 node-<a> 101 \S+ \S+ UTC 5 sessions 1 episodes at work", text)
    assert re.search(r"learner 1 node-c 104 \S+ \S+ UTC – – at work", text)
    assert re.search(r"copy 1 node-d 105 \S+ \S+ UTC 0 batches 0 batches at work", text)
    assert re.search(r"engine 1 node-b 103 \S+ \S+ UTC 0 calls 0 calls at work", text)
    assert "status -9 <b>; 3 sessions went on elsewhere" in text
    closed = words(client_of(tmp_path).get("/run/train-a").text)
    assert "ended with its driver" in closed


def test_alarms_are_reported_as_they_were_recorded_and_found_again_where_they_were_not(
    tmp_path: Path,
) -> None:
    old, new = make_training(tmp_path, "old"), make_training(tmp_path, "new")
    then = Alarm("engine_gap", "Step 2: 0.2 against the 0.01 of those days.", 2, 0.2, 0.01)
    with RunFolder.open(new) as run:
        store_alarms(run.database, "rl", {"engine_gap": Raised(then, 7, 4)})
    client = client_of(tmp_path)
    text = words(settled(client, "/run/new"))
    assert "0.01 of those days. It was raised at 4 steps, last at step 7." in text
    assert "nats per token" not in text and "the current monitors" not in text
    again = words(settled(client, "/run/old"))
    assert "the current monitors" in again and "0.2 nats per token" in again
    with RunFolder.read(old) as run:
        assert run.database.get("alarms/rl") is None  # looking changes nothing


def test_verdicts_of_judges_stand_on_the_page_of_an_episode(tmp_path: Path) -> None:
    path = make_run(tmp_path, "eval-a", [plain(Key("eval/test", i), number=i) for i in range(2)])
    output = Verdict("seen:won", "abc", 0.0, "<b>nowhere</b> is 'won' seen")
    with RunFolder.open(path) as run:
        store_verdicts(run.database, "seen:won", {Key("eval/test", 1): output})
    client = client_of(tmp_path)
    page = client.get("/run/eval-a/episode/eval/test/1.0").text
    assert "seen:won not solved (0) <b>nowhere</b> is 'won' seen" in words(page)
    assert "<b>nowhere" not in page
    assert "Judges" not in words(client.get("/run/eval-a/episode/eval/test/0.0").text)


def test_the_figures_of_a_phase_are_there_as_a_table(client: TestClient) -> None:
    rows = client.get("/run/train-a/metrics.csv?phase=rl").text.split()
    assert rows[0] == "step,success,entropy,gap,loss" and len(rows) == 13


def test_a_reward_models_score_is_drawn_in_the_chart_of_success(
    client: TestClient, tmp_path: Path
) -> None:
    path = make_training(tmp_path, "train-a")
    with RunFolder.open(path) as run:
        for step in range(1, 13):
            run.database.add_metrics("rl", step, {"success": 0.5, "modelled_reward": step / 2})
    page = client_of(tmp_path).get("/run/train-a").text
    assert "modelled reward, 0.50 to 6.00 (its own unit)" in page
    curve = page[page.index('data-part="curve"') : page.index('data-part="cost"')]
    assert curve.count('class="line s7"') == 1
    assert "modelled reward" not in client.get("/run/train-a").text


def test_runs_beside_each_other_show_curves_and_only_the_keys_that_differ(
    client: TestClient,
) -> None:
    page = client.get("/curves?run=train-a&run=train-b").text
    text = words(page)
    assert page.count('class="line ') == 2 and page.count('class="band ') == 2
    assert "learning_rate 0.1 0.2" in text and "seed" not in text
    assert "3 keys are equal" in text
    entropy = client.get("/curves?run=train-a&metric=entropy")
    assert entropy.status_code == 200 and 'class="band ' not in entropy.text


# ── the table of episodes ────────────────────────────────────────────────────


def shown(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="[^"]+">([^<]+)</a>', page)


def test_the_table_of_episodes_has_pages(client: TestClient) -> None:
    first = client.get("/run/eval-a/episodes").text
    assert len(shown(first)) == 100 and "250" in words(first)
    last = client.get("/run/eval-a/episodes?page=3").text
    assert shown(last)[-1] == "eval/test/249.0" and len(shown(last)) == 50
    assert 'rel="next"' in first and 'rel="next"' not in last and 'rel="prev"' in last
    assert shown(client.get("/run/eval-a/episodes?page=99").text) == []


@pytest.mark.parametrize(
    ("query", "count", "first"),
    [
        ("sort=-turns", 250, "eval/test/249.0"),
        ("sort=-reward&solved=yes", 63, "eval/test/248.0"),
        ("outcome=truncated(turns)", 62, "eval/test/2.0"),
        ("outcome=error", 62, "eval/test/3.0"),
        ("task=test/24", 11, "eval/test/24.0"),
        ("env=nowhere", 0, None),
        ("text=A+ROOM", 250, "eval/test/0.0"),
        ("phase=eval", 250, "eval/test/0.0"),
        ("phase=eval/tes", 0, None),
        ("text=%25", 0, None),
        ("sort=nonsense&solved=perhaps", 250, "eval/test/0.0"),
    ],
)
def test_episodes_are_filtered_and_sorted_by_the_address(
    client: TestClient, query: str, count: int, first: str | None
) -> None:
    found = client.get(f"/run/eval-a/episodes.json?{query}&count=1").json()
    assert found["total"] == count
    assert (found["rows"][0]["cells"][0] if found["rows"] else None) == first


def test_any_place_of_the_table_can_be_asked_for(client: TestClient) -> None:
    found = client.get("/run/eval-a/episodes.json?start=240&count=500").json()
    assert [row["cells"][0] for row in found["rows"]] == [
        f"eval/test/{i}.0" for i in range(240, 250)
    ]
    assert client.get("/run/eval-a/episodes.json?start=-1").status_code == 400
    assert client.get("/run/eval-a/episodes?page=x").status_code == 400


# ── search ───────────────────────────────────────────────────────────────────


def test_a_damaged_run_is_named_and_left_out_of_the_others_results(tmp_path: Path) -> None:
    for name in ("sound", "broken", "half", "empty", "bare"):
        make_run(
            tmp_path, name, [plain(Key("eval/test", i), saw="a purple door") for i in range(9)]
        )
    damaged.garble_all_but_the_first_page(tmp_path / "broken")
    (tmp_path / "empty" / "run.sqlite").write_bytes(b"")
    (tmp_path / "bare" / "run.json").unlink()
    file = tmp_path / "half" / "run.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:  # listed, and cannot be quoted
        connection.execute("UPDATE episode SET usage = '{'")
    client = client_of(tmp_path)
    for query in ("purple", "env:babyai", "turns>=1", "purple turns>=1"):
        page = settled(client, f"/search?q={query}")
        assert client.get(f"/search?q={query}").status_code == 200
        output = words(page)
        assert "9 episodes" in output and page.count('href="/run/sound/episode') == 9
        for name in ("broken", "half", "empty", "bare"):
            assert f"{name}: The run {tmp_path / name} is damaged" in output, (query, name)
            assert f"palaestra doctor {tmp_path / name}" in output
    first = words(settled(client, "/"))
    assert first.count("is damaged: its run.sqlite cannot be read") == 2  # figures need no usage
    for name in ("broken", "empty"):
        answer = client.get(f"/run/{name}")
        assert answer.status_code == 409 and "palaestra doctor" in words(answer.text)
    assert client.get("/curves?run=sound&run=broken").status_code == 409


def test_search_finds_words_and_states_where(tmp_path: Path) -> None:
    episodes = [plain(Key("eval/test", i), number=i) for i in range(6)]
    episodes[4] = plain(Key("eval/test", 4), number=4, saw="x", did="open the Purple-door")
    make_run(tmp_path, "eval-a", episodes)
    make_run(tmp_path, "eval-b", episodes[:2])
    client = client_of(tmp_path)
    page = settled(client, '/search?q="purple door"')
    assert "1 episodes" in words(page) and "<mark>Purple-door</mark>" in page
    assert '/run/eval-a/episode/eval/test/4.0?turn=1#turn-1"' in page
    assert "8 episodes in 2 runs" in words(client.get("/search?q=forward").text)
    assert "1 episodes" in words(client.get("/search?q=purp* solved:yes turns>=3").text)
    assert "0 episodes" in words(client.get("/search?q=purp* solved:no").text)
    assert "2 episodes" in words(client.get("/search?q=run:eval-b").text)


def test_a_count_of_a_half_built_index_is_marked_as_partial_and_the_index_goes_on(
    tmp_path: Path,
) -> None:
    """The index of one run is held up by a lock, as another program may hold it."""
    run = make_run(tmp_path, "slow", [plain(Key("eval/test", i)) for i in range(5)])
    make_run(tmp_path, "done", [plain(Key("eval/test", i)) for i in range(3)])
    with RunFolder.read(run) as opened:
        TextIndex(run).extend(opened.database, seconds=0.0)  # one of its episodes
    client = client_of(tmp_path)
    with closing(sqlite3.connect(run / "search-1.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        settled(client, "/search?q=forward+run:done")
        page = client.get("/search?q=forward").text
        assert "at least 4 episodes in 2 runs so far" in words(page)
        assert 'data-moves="/search/progress?q=forward"' in page and "data-pending" in page
        part = client.get("/search/progress?q=forward").text
        assert "slow" in words(part) and "done" not in words(part) and "<progress" in part
        other.execute("ROLLBACK")
    page = settled(client, "/search?q=forward")
    assert "8 episodes in 2 runs" in words(page) and "at least" not in words(page)
    assert "data-moves" not in page
    assert words(client.get("/search/progress?q=forward").text) == ""


@pytest.mark.parametrize(
    "query",
    ['"', '""""', "a OR NEAR(", "reward>nan", "*", "^x -y", "%00", "(", "'; --", "x" * 5000],
)
def test_no_question_breaks_the_search(client: TestClient, query: str) -> None:
    assert client.get("/search", params={"q": query}).status_code == 200


def test_labels_of_persons_are_found(tmp_path: Path) -> None:
    path = make_run(tmp_path, "eval-a", [plain(Key("eval/test", i)) for i in range(3)])
    Notes.open(path).add(Key("eval/test", 2), "", {"good": "yes"})
    client = client_of(tmp_path)
    assert client.get("/run/eval-a/episodes.json?label=good").json()["total"] == 1
    assert "eval/test/2.0" in client.get("/search?q=label:good").text
    assert "0 episodes" in words(client.get("/search?q=label:bad").text)


# ── notes ────────────────────────────────────────────────────────────────────


def test_a_note_is_taken_from_a_page_of_this_site_only(tmp_path: Path) -> None:
    path = make_run(tmp_path, "eval-a", [plain(Key("eval/test", 0))])
    client = client_of(tmp_path)
    note = {"episode": "eval/test/0.0", "text": "odd", "labels": "good, lost_at=2", "back": "/x"}
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://elsewhere.example"}):
        assert client.post("/run/eval-a/notes", data=note, headers=origin).status_code == 403
    assert labelled(path) == {}
    here = {"Origin": "http://127.0.0.1:8417"}
    answer = client.post("/run/eval-a/notes", data=note, headers=here, follow_redirects=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/x"
    assert labelled(path) == {Key("eval/test", 0): {"good": "yes", "lost_at": "2"}}
    assert "odd" in client.get("/run/eval-a").text
    away = {**note, "back": "//elsewhere.example"}
    answer = client.post("/run/eval-a/notes", data=away, headers=here, follow_redirects=False)
    assert answer.headers["location"] == "/run/eval-a"
    client.post("/run/eval-a/notes", data={"remove": "1"}, headers=here, follow_redirects=False)
    assert len(Notes.open(path).all()) == 1
    missing = {**note, "episode": "eval/test/9.0"}
    assert client.post("/run/eval-a/notes", data=missing, headers=here).status_code == 404
    huge = {**note, "text": "x" * 300_000}
    assert client.post("/run/eval-a/notes", data=huge, headers=here).status_code == 413
    empty = {"episode": "eval/test/0.0"}
    refused = client.post("/run/eval-a/notes", data=empty, headers=here)
    assert refused.status_code == 409 and "The note is empty" in words(refused.text)


# ── what goes wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("address", "code", "output"),
    [
        ("/run/nope", 404, "There is no run 'nope' here."),
        ("/run/nope/episodes", 404, "There is no run 'nope' here."),
        ("/run/nope/live.json", 404, "There is no run 'nope' here."),
        ("/curves?run=eval-a&run=nope", 404, "There is no run 'nope' here."),
        ("/nowhere", 404, "There is no page /nowhere here."),
        ("/run/%2e%2e%2f%2e%2e/episodes", 404, "There is no"),
        ("/static/%2e%2e/app.py", 404, "There is no page"),
        ("/static/../site.py", 404, "There is no page"),
        (
            "/curves?run=train-a&metric=nope",
            404,
            "None of these runs recorded 'nope'",
        ),
    ],
)
def test_what_is_not_there_is_reported_in_words(
    client: TestClient, address: str, code: int, output: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == code and output in words(answer.text)


def test_a_run_of_an_older_format_reports_it_and_hides_no_other(tmp_path: Path) -> None:
    old = make_run(tmp_path, "old", [plain(Key("eval/test", 0))])
    make_run(tmp_path, "new", [plain(Key("eval/test", 0))])
    about = json.loads((old / "run.json").read_text())
    (old / "run.json").write_text(json.dumps({**about, "format": 1}))
    broken = make_run(tmp_path, "broken", [])
    (broken / "run.sqlite").write_bytes(b"no database" * 1000)
    client = client_of(tmp_path)
    page = words(client.get("/").text)
    assert "run format 1" in page and "new eval babyai/GoTo" in page and "broken" in page
    answer = client.get("/run/old")
    assert answer.status_code == 409 and "pip install palaestra==" in words(answer.text)
    assert client.get("/run/broken").status_code == 409
    assert client.get("/run/new").status_code == 200
    assert "1 episodes" in words(client.get("/search?q=forward").text)


def test_one_without_the_token_reads_and_writes_nothing(tmp_path: Path) -> None:
    """On a shared machine every user reaches the site."""
    path = make_run(tmp_path, "eval-a", [plain(Key("eval/test", 0))])
    Notes.open(path).add(Key("eval/test", 0), "what I think")
    note = {"episode": "eval/test/0.0", "text": "forged"}
    here = {"Origin": "http://127.0.0.1:8417"}
    wrong = client_of(tmp_path, shown="guessed")
    wrong.cookies.set("palaestra-8417", "guessed")
    for stranger in (client_of(tmp_path, shown=""), client_of(tmp_path, shown="tokén"), wrong):
        for address in ("/run/eval-a", "/run/eval-a/episode/eval/test/0.0", "/live.json", "/?q=x"):
            answer = stranger.get(address)
            assert answer.status_code == 403 and "what I think" not in answer.text
            assert answer.text.count("\n") == 0 and "?token=" in answer.text
        assert stranger.post("/run/eval-a/notes", data=note, headers=here).status_code == 403
        removed = stranger.post("/run/eval-a/notes", data={"remove": "1"}, headers=here)
        assert removed.status_code == 403
    assert [one.text for one in Notes.open(path).all()] == ["what I think"]
    known = client_of(tmp_path)
    assert "what I think" in known.get("/run/eval-a").text
    assert known.post("/run/eval-a/notes", data=note, headers=here).status_code == 200
    assert len(Notes.open(path).all()) == 2


def test_the_token_is_shown_once_and_kept_where_no_script_and_no_other_site_has_it(
    root: Path,
) -> None:
    client = client_of(root, shown="")
    answer = client.get(f"/run/eval-a?token={TOKEN}&export=1", follow_redirects=False)
    assert answer.status_code == 307 and answer.headers["location"].endswith("/run/eval-a?export=1")
    kept = answer.headers["set-cookie"].lower()
    assert kept.startswith(f"palaestra-8417={TOKEN};") and "domain" not in kept
    assert "httponly" in kept and "samesite=lax" in kept
    assert client.get("/").status_code == 200  # it is kept


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("evil.example:8417", 403),  # a page elsewhere that lets its name point here
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8417", 403),
        ("127.0.0.1:x", 403),
        ("[::1", 403),
        ("", 403),
        ("localhost:8417", 200),
        ("[::1]:8417", 200),
    ],
)
def test_only_the_names_of_this_machine_are_answered(
    client: TestClient, host: str, code: int
) -> None:
    headers = {"Host": host, "Cookie": f"palaestra-8417={TOKEN}"}
    assert client.get("/", headers=headers).status_code == code


def test_a_site_for_other_machines_has_any_name(root: Path) -> None:
    open_site = TestClient(application(Site(root), TOKEN, None), base_url="http://box.lan:8417")
    assert open_site.get("/").status_code == 403
    assert open_site.get(f"/?token={TOKEN}").status_code == 200


def test_every_answer_forbids_foreign_content(client: TestClient) -> None:
    for address in ("/", "/run/train-a", "/nowhere", "/static/viewer.js"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy


def test_no_page_holds_inline_style_or_script(client: TestClient) -> None:
    for address in ("/", "/run/train-a", "/run/eval-a/episodes", "/curves?run=train-a", "/search"):
        page = client.get(address).text
        assert not re.search(r"<[^>]+\s(style|on\w+)=", page), address
        assert not re.search(r"<script(?![^>]*\bsrc=)", page), address
        assert not re.search(r'(src|href)="(https?:)?//', page), address


# ── hostile content ──────────────────────────────────────────────────────────


def test_hostile_episodes_are_text_on_every_page(tmp_path: Path) -> None:
    episodes = []
    for number, text in enumerate(HOSTILE):
        made = plain(Key("eval/test", number), number=number, saw=text, did=text)
        made = replace(
            made,
            task=Task(text[:500], text[:500], 1, instruction=text),
            outcome=Outcome.error(text[:100], Owner.AGENT, text),
            labels={text[:50]: text[:50] + "\ud800"},
            agent=text[:500],
        )
        episodes.append(made)
    name = "x<img src=x onerror=alert(1)> {{1234567*7}} '\"& b"
    recipe = {"summary": "\ud800" + "".join(HOSTILE[:5]), "environment": {"id": HOSTILE[0]}}
    path = make_run(tmp_path, name, episodes, {**recipe, HOSTILE[0]: HOSTILE[1]})
    Notes.open(path).add(Key("eval/test", 0), "".join(HOSTILE[:5]), {HOSTILE[0]: HOSTILE[1]})
    client = client_of(tmp_path)
    front = client.get("/").text
    address = unescape(re.findall(r'href="(/run/[^"]+)"', front)[0])
    pages = ["/", address, f"{address}/episodes", "/search?q=script", "/search?q=run:x"]
    pages += ["/curves?run=" + address.removeprefix("/run/")]
    pages += [f"{page}{'&' if '?' in page else '?'}export=1" for page in pages]
    for asked in pages:
        answer = client.get(asked)
        assert answer.status_code == 200, asked
        page = answer.text
        for bad in ("<script>document", "<img src=x", "<svg/onload", "</textarea></title>"):
            assert bad not in page, asked
        assert visible(page) == page, asked  # nothing in it is hidden
        assert "8641969" not in page, asked  # no template was run: not the run's name,
        assert page.count("<!doctype html>") == 1, asked  # nor the include of an episode
        assert not re.search(r'href="\s*javascript:', page), asked
    rows = client.get(f"{address}/episodes.json").json()["rows"]
    assert len(rows) == len(HOSTILE)
    assert all(visible(cell) == cell for row in rows for cell in row["cells"])
    assert all(len(cell) <= 200 for row in rows for cell in row["cells"] if cell)


def test_what_a_person_typed_comes_back_as_it_was(client: TestClient) -> None:
    typed = "می\u200cخواهم"  # a word of Persian, whose joiner is part of it
    for address in (f"/search?q={typed}", f"/run/eval-a/episodes?task={typed}", f"/?q={typed}"):
        assert f'value="{typed}"' in client.get(address).text, address


# ── a run that goes on ───────────────────────────────────────────────────────


def test_a_run_is_read_while_another_process_writes_it(tmp_path: Path) -> None:
    writer = python(
        """
        import sys, time
        from pathlib import Path
        from palaestra.core.episode import Key
        from palaestra.store.run_folder import RunFolder
        from tests.viewer.stores import RECIPE, plain
        run = RunFolder.create(Path(sys.argv[1]), RECIPE)
        number = 0
        print("ready", flush=True)
        while True:
            run.database.finish(plain(Key("eval/test", number), number=number))
            if number % 50 == 0:
                run.database.add_metrics("rl", number // 50 + 1, {"success": 0.5})
            number += 1
            time.sleep(0.002)
        """,
        str(tmp_path / "run"),
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        client = client_of(tmp_path)
        counts = []
        for _ in range(6):
            for address in ("/", "/run/run", "/run/run/episodes", "/search?q=forward"):
                assert client.get(address).status_code == 200
            state = client.get("/run/run/live.json").json()
            assert state["live"] is True
            counts.append(client.get("/run/run/episodes.json?count=1").json()["total"])
        assert counts == sorted(counts)
        page = client.get("/run/run").text
        assert f'title="process {writer.pid}"' in page
    finally:
        writer.kill()
        writer.wait()
    after = client.get("/run/run/live.json").json()
    assert after["live"] is False


def test_a_lock_left_by_a_killed_process_is_no_sign_of_life(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", [plain(Key("eval/test", 0))])
    client = client_of(tmp_path)
    for left in ("999999999\n", "nonsense", "-1", "1" * 400):
        (path / "run.lock").write_text(left)
        assert client.get("/run/run/live.json").json()["live"] is False


def test_what_changes_is_seen(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", [plain(Key("eval/test", 0))])
    client = client_of(tmp_path)
    before = client.get("/run/run/live.json").json()
    assert before == client.get("/run/run/live.json").json()
    Notes.open(path).add(Key("eval/test", 0), "seen")
    assert client.get("/run/run/live.json").json()["version"] != before["version"]


def test_a_run_in_a_folder_that_cannot_be_written_is_shown_and_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path, "run", [plain(Key("eval/test", 0))])
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "cache"))
    with sqlite3.connect(path / "run.sqlite") as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    real = shutil.os.access
    monkeypatch.setattr(
        "os.access", lambda where, mode: False if str(where) == str(path) else real(where, mode)
    )
    client = client_of(tmp_path)
    assert client.get("/run/run").status_code == 200
    assert "1 episodes" in words(client.get("/search?q=forward").text)
    assert not list(path.glob("search*")) and list((tmp_path / "cache/search").iterdir())
