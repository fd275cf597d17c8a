"""`palaestra play --player`: a person plays for one player, and agents for the others."""

from __future__ import annotations

import io

import pytest

from palaestra.cli.main import main
from tests.core.games import Tally

GAME = f"{Tally.__module__}:Tally"
AGENTS = ["--player", "ann=direct@random", "--player", "cat=direct@random"]


def played(monkeypatch: pytest.MonkeyPatch, lines: str, *options: str, env: str = GAME) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    return main(["play", "--env", env, *options])


def test_a_person_plays_one_seat_and_agents_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(monkeypatch, "1\nfour\n2\n\n3\n", "--player", "bob", *AGENTS) == 0
    printed = capsys.readouterr().out
    assert "You are bob." in printed and "bob, round 1. Last: -" in printed
    assert "(invalid action) bob: 1, 2 or 3." in printed
    assert "bob, round 2. Last: ann" in printed and "ann, round" not in printed
    end = printed[printed.index("The game is over.") :]
    assert "ann: return +" in end and "bob: return +" in end and "4 action(s)" in end


def test_commands_answer_for_the_person_s_own_move(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(monkeypatch, ":actions\n:hint\n:help\n:quit\n", "--player", "cat", *AGENTS[:2],
                  "--player", "bob=direct@random") == 0  # fmt: skip
    printed = capsys.readouterr().out
    assert "Actions: 1, 2, 3" in printed and "has no expert" in printed
    assert printed.count("Name a number") == 2


@pytest.mark.parametrize("lines", ["1\nquit\n", "1\n"])
def test_a_person_who_leaves_forfeits(
    lines: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(monkeypatch, lines, "--player", "bob", *AGENTS) == 0
    assert "bob: return -5, 1 action(s), forfeited (gave up)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--player", "dan"], "There is no player 'dan'."),
        (["--player", "bob"], "Nobody plays for ann in"),
        (["--player", "bob", "--player", "bob", *AGENTS], "names 'bob' twice"),
        (["--player", "bob=direct", *AGENTS], "--player bob=direct names no agent with a model"),
        (["--player", "bob=@random", *AGENTS], "names no agent with a model"),
        (["--player", "bob=direct@random", *AGENTS], "No person plays; give --player bob alone"),
        (["--player", "bob", "--player", "ann=direct@nope", *AGENTS[2:]], "There is no model 'nop"),
        (["--player", "bob", "--player", "ann=nope@random", *AGENTS[2:]], "There is no agent 'nop"),
        (["--player", "bob", "--player", "ann=players@random", *AGENTS[2:]], "cannot play for ann"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    options: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert played(monkeypatch, "", *options) == 2
    shown = capsys.readouterr()
    assert reason in shown.err and "You are" not in shown.out


def test_a_single_player_has_nobody_to_play_against(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(monkeypatch, "", "--player", "agent", env="probe/umbrella-4") == 2
    assert "has a single player; leave out --player" in capsys.readouterr().err
