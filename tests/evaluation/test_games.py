"""Evaluations of games: results per player on the terminal, as JSON, on leaderboards, in frames."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspiel", reason="needs open-spiel")

from palaestra.api.results import Results
from palaestra.cli.main import main

KUHN = "openspiel/kuhn_poker:self"
ALONE = "probe/umbrella-4"
PLAYERS = ["player0", "player1"]


def evaluate(folder: Path, *options: str) -> Path:
    fixed = ["--agent", "players", "-n", "6", "--run", str(folder), "--workers", "0"]
    assert main(["eval", *options, *fixed]) == 0
    return folder


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games") / "kuhn"
    return evaluate(folder, "--env", KUHN, "--model", "random")


def test_the_result_of_a_game_has_players_and_no_success(
    kuhn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Results.read(kuhn)
    assert found.success is None and found.interval is None
    assert list(found.players) == PLAYERS
    assert sum(one.mean for one in found.players.values()) == pytest.approx(0)
    assert all(one.episodes == 6 for one in found.players.values())
    assert found.data["outcomes"] == {"ended": 6}
    text = str(found)
    assert "success" not in text and re.search(r"player0 +[+-]\d\.\d\d", text)
    assert f"palaestra exploitability {kuhn}" in text and "palaestra ratings" not in text
    assert "<td>player1</td>" in found._repr_html_()


def test_the_result_of_a_single_player_keeps_its_keys(tmp_path: Path) -> None:
    found = Results.read(evaluate(tmp_path / "alone", "--env", ALONE, "--model", "random"))
    assert "players" not in found.data and found.players == {}
    assert found.success is not None and "success" in str(found)
    assert not [name for name in found.to_pandas() if "return" in name or name == "players"]


def test_a_data_frame_has_a_column_for_the_return_of_each_player(kuhn: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    frame = Results.read(kuhn).to_pandas()
    assert (frame["return/player0"] + frame["return/player1"] == 0).all()
    assert "players" not in frame


def test_show_and_the_leaderboard_list_players(
    kuhn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(kuhn), "--json"]) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["eval/test"]
    assert list(phase["players"]) == PLAYERS and phase["success"] is phase["solved"] is None
    alone = evaluate(tmp_path / "alone", "--env", ALONE, "--model", "random")
    capsys.readouterr()
    page, table = tmp_path / "board.html", tmp_path / "board.json"
    assert main(["leaderboard", str(kuhn), str(alone), "--to", str(page), "--to", str(table)]) == 0
    for text in (capsys.readouterr().out.replace("\\", ""), page.read_text()):
        games = text[text.index("Games: returns of each player") :]
        assert "player0" in games and "palaestra ratings" in games
        assert KUHN not in text[: text.index("Games: returns of each player")]
    board = json.loads(table.read_text())
    assert board["weights"] == {ALONE: 1.0}
    assert list(board["games"][0]["players"]) == PLAYERS


def test_metrics_of_games_are_returns(kuhn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(kuhn), "--metrics", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["eval/test"]["metrics"]
    assert "success" not in found and {f"return, {p}" for p in PLAYERS} <= found.keys()
    assert main(["show", str(kuhn), "--metrics", "--by", "environment"]) == 2
    assert "games between players have none" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["diff"], ["aggregate"]])
def test_what_compares_success_refuses_games_and_says_what_rates_policies(
    command: list[str], kuhn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = evaluate(tmp_path / "other", "--env", KUHN, "--model", "random", "--seed", "2")
    capsys.readouterr()
    assert main([*command, str(kuhn), str(other)]) == 2
    reason = capsys.readouterr().err
    assert "is a game between players" in reason and "palaestra ratings" in reason


def test_advice_refuses_games_alone(kuhn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(kuhn)]) == 2
    assert "games between players only" in capsys.readouterr().err
