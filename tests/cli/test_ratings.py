"""`palaestra ratings`: from recorded games to strengths."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.core.message import assistant, user
from palaestra.core.model import Finish
from palaestra.evaluation.statistics.ratings import Game, bradley_terry, elo
from palaestra.store.run_folder import RunFolder
from tests.evaluation.made import FAILURE, SUCCESS, episode, evaluation

SEATS = ("north", "south")


def game(group: int, players: tuple[str, str], winner: int) -> Episode:
    """A game that the player of that number won."""
    finished = episode("eval/test", group, SUCCESS if winner == 0 else FAILURE, ("rock", "paper"))
    calls = tuple(
        Call(
            index=i, parent=None, role=seat, messages=(user("play"),), prompt=(),
            reply=assistant("rock"), completion=(), logprobs=(), finish=Finish.STOP,
            policy=policy, version=0,
        )
        for i, (seat, policy) in enumerate(zip(SEATS, players, strict=True))
    )  # fmt: skip
    rewards = {seat: 1.0 if i == winner else -1.0 for i, seat in enumerate(SEATS)}
    last = finished.steps[-1]
    steps = (
        *finished.steps[:-1],
        replace(last, transition=replace(last.transition, rewards=rewards)),
    )
    return replace(finished, calls=calls, steps=steps)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Game]:
    """Games of three players in two runs, and an episode that is none."""
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    made = [
        *[("tiny", "random", 0)] * 6, *[("random", "tiny", 0)] * 2, *[("tiny", "null", 0)] * 3,
        ("null", "tiny", 0), *[("random", "null", 0)] * 3, ("null", "random", 0),
    ]  # fmt: skip
    for name, part in (("a", made[:8]), ("b", made[8:])):
        with RunFolder.create(tmp_path / name, {}) as run:
            for group, (first, second, winner) in enumerate(part):
                run.database.finish(game(group, (first, second), winner))
            if name == "b":
                run.database.finish(episode("eval/test", 99, FAILURE))
    with RunFolder.create(tmp_path / "alone", {}) as run:
        for finished in evaluation("eval/test", 0.5, 4):
            run.database.finish(finished)
    return [Game(first, second, 1.0) for first, second, _ in made]


def test_strengths_are_fitted_to_the_games_of_all_runs(
    runs: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ratings", "a", "b", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["games"], result["left_out"]) == (len(runs), 1)
    fitted = bradley_terry(runs)
    assert [row["player"] for row in result["players"]] == list(fitted.players)
    for row in result["players"]:
        assert row["elo"][0] == pytest.approx(fitted.elo(row["player"]).mean)
        assert row["sequential_elo"] == pytest.approx(elo(runs)[row["player"]])
    assert result["players"][0]["player"] == "tiny"
    assert result["players"][0]["score"] == 9 / 12
    assert main(["ratings", "a", "b"]) == 0
    assert "1 other episodes left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("alone",), "None of the 4 episodes is a game"),
        (("nowhere",), "There is no run"),
        (("a", "--phase", "eval/tset"), "eval/test"),
    ],
)
def test_what_cannot_work_exits_2_with_a_sentence(
    runs: list[Game], arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ratings", *arguments]) == 2
    assert why in capsys.readouterr().err
