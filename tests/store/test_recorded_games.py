"""Games in stores and files: who acted and who forfeited, also in records made before forfeits.

`game-without-forfeits.tar.xz` holds a run and its Parquet file as the code before forfeits wrote
them: two games of Kuhn poker between random players.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.players import PlayersAgent
from palaestra.cli.main import main
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.exchange.atif import trajectory
from palaestra.store.exchange.chat_jsonl import conversations
from palaestra.store.exchange.inspect_log import sample
from palaestra.store.exchange.otel import trace
from palaestra.store.recorded_players import game_environments, phase_players, players_by_key
from palaestra.store.run_folder import RunFolder
from tests.core import small
from tests.core.games import Tally
from tests.store import samples
from tests.viewer.stores import client_of

START = datetime(2026, 1, 2, tzinfo=UTC)
GAME = f"{Tally.__module__}:Tally"


def forfeited() -> Episode:
    """A game in which the second player is not understood."""
    words = {"ann": "1", "bob": "what?", "cat": "3"}
    models = {
        who: ScriptedModel(lambda m, word=word: word, name=who, renderer=small.renderer())
        for who, word in words.items()
    }
    session = Session(
        Key("eval/test", 0),
        TaskSet(GAME).task(Split.TEST, 0),
        LocalEnvironment(Tally()),
        PlayersAgent(),
        models,
        budget=Budget(invalid_actions=2),
    )
    return asyncio.run(session.run())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("game-without-forfeits.tar.xz")) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"


def test_a_game_recorded_before_forfeits_opens_with_its_results(old: Path) -> None:
    with RunFolder.read(old / "run") as run:
        episodes = run.database.episodes("eval/test")
        assert [e.results for e in episodes] == [p for _, p in totals(run, "eval/test")]
    for episode in episodes:
        assert set(episode.results) == {"player0", "player1"}
        assert sum(episode.results.values()) == 0
        assert not any(one.forfeited for one in episode.players.values())
        assert all(s.forfeit is None and s.before.together == () for s in episode.steps)
    parquet = pytest.importorskip("palaestra.store.parquet")
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    assert parquet.ParquetTrace.open(old / "trace.parquet").episodes("eval/test") == episodes


def totals(run: RunFolder, phase: str) -> list[tuple[Episode, dict[str, float]]]:
    found = phase_players(run.database, phase)
    return [(e, {player: one.total for player, one in of.items()}) for e, of in found]


def test_a_game_recorded_before_forfeits_is_shown_by_player(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(old / "run")]) == 0
    printed = capsys.readouterr().out
    assert "mean returns player0" in printed and "success" not in printed
    assert main(["show", str(old / "run"), "eval/test/0.0"]) == 0
    assert "player0: return" in capsys.readouterr().out
    page = client_of(old).get("/run/run/episode/eval/test/0.0")
    assert page.status_code == 200 and "<b>player0</b>" in page.text


def test_only_games_have_results_of_players(tmp_path: Path) -> None:
    game, alone = forfeited(), samples.episode(Key("rl/1", 0))
    with RunFolder.create(tmp_path / "run", {}) as run:
        database = run.database
        for episode in (game, alone):
            database.finish(episode)
        assert game_environments(database) == {"eval/test": {GAME}}
        assert game_environments(database, "rl/1") == {}
        assert phase_players(database, "rl/1") == []
        assert players_by_key(database, [game.key, alone.key]) == {game.key: game.players}


def test_a_forfeit_survives_the_store(tmp_path: Path) -> None:
    game = forfeited()
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.database.finish(game)
    with RunFolder.read(tmp_path / "run") as run:
        assert run.database.episode(game.key) == game
    assert game.steps[-1].forfeit is not None and game.players["bob"].forfeited


def test_exports_name_the_player_of_each_step_and_the_returns() -> None:
    game = forfeited()
    movers = ["ann", "bob", "bob", "bob"]
    atif = trajectory(game)
    extras = [
        r["extra"] for s in atif["steps"] for r in s.get("observation", {"results": []})["results"]
    ]
    assert [one["player"] for one in extras] == movers
    assert [one.get("forfeit") for one in extras] == [None] * 3 + ["error(unparsed, agent)"]
    assert atif["final_metrics"]["extra"] == {"returns": game.results}
    log = sample(game, START)
    assert {n: s["value"] for n, s in log["scores"].items()} == {
        f"return/{player}": total for player, total in game.results.items()
    }
    acted = [event["data"] for event in log["events"] if event["event"] == "info"]
    assert [one["player"] for one in acted] == movers and "forfeit" in acted[-1]
    spans = trace(game, START)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    steps = [attributes(s) for s in spans if s["name"].startswith("execute_tool")]
    assert [one["palaestra.player"] for one in steps] == movers
    verdicts = [attributes(event) for event in spans[0]["events"]]
    assert [one["gen_ai.evaluation.name"] for one in verdicts] == [
        "return/ann", "return/bob", "return/cat",
    ]  # fmt: skip


def attributes(of: Any) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in of["attributes"]}


def test_a_conversation_is_exported_with_its_own_player_s_result() -> None:
    rows = {row["player"]: row for row in conversations(forfeited())}
    assert set(rows) == {"ann", "bob"}
    assert (rows["ann"]["reward"], rows["bob"]["reward"]) == (0.0, -5.0)
    assert rows["bob"]["outcome"] == "error(unparsed, agent)" and not rows["bob"]["solved"]
    assert "player" not in next(iter(conversations(samples.episode(Key("rl/1", 0)))))


def test_a_parquet_file_has_a_column_of_players(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    from palaestra.store.parquet import ParquetTrace, write_parquet

    game, file = forfeited(), tmp_path / "games.parquet"
    write_parquet(file, [game])
    row = pq.read_table(file).to_pylist()[0]
    assert [(one["player"], one["return"], one["forfeit"]) for one in row["players"]] == [
        ("ann", 0.0, None), ("bob", -5.0, "error(unparsed, agent)"), ("cat", 0.0, None),
    ]  # fmt: skip
    assert ParquetTrace.open(file).episodes("eval/test") == [game]
    assert json.loads(row["raw_events"][-1]["body"])["forfeit"]["player"] == "bob"


def test_games_are_exported_by_who_won(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder.create(tmp_path / "run", {"command": "eval", "environment": GAME}) as run:
        run.database.finish(forfeited())
    folder, file = str(tmp_path / "run"), tmp_path / "x.jsonl"
    export = ["export", folder, "--format", "json", "--to", str(file)]
    assert main([*export, "--solved"]) == 2
    assert "in which no episode is solved; give --won PLAYER" in capsys.readouterr().err
    for player, count in (("ann", 0), ("bob", 0)):
        assert main([*export, "--won", player]) == 0
        assert capsys.readouterr().out.startswith(f"{count} episodes")
    assert main([*export, "--won", "dan"]) == 2
    assert "no player 'dan'" in capsys.readouterr().err
