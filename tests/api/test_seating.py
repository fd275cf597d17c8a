"""Who plays: agents and models of players, teams in the place of players, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.api.evaluation_request import asked
from palaestra.api.registering import roles_of
from palaestra.api.seating import AgentAndModel, seated
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.evaluation.running.matrix import plan
from palaestra.store.run_folder import RunFolder

KUHN = "openspiel/kuhn_poker:self"
TEAM = """
[members.author]
agent = "react?history=4"
[members.critic]
model = "random"
turns = 50
[[stage]]
do = "propose"
who = ["author"]
[[stage]]
do = "talk"
who = ["critic"]
[[stage]]
do = "count"
"""


@pytest.fixture
def team(tmp_path: Path) -> str:
    file = tmp_path / "team.toml"
    file.write_text(TEAM)
    return str(file)


def test_players_and_members_become_agents_and_models(team: str) -> None:
    found = seated(
        {"black": "react@random", "red": "@expert"},
        {"white": team},
        {"white": "smollm2-135m", "black": "random"},
    )
    assert found.agent == "players?white.author=react%3Fhistory%3D4&black=react"
    assert found.knob == f"team=white:{team}"
    assert found.roles == {
        "white.author": "smollm2-135m",  # as that of the player, and a member's own:
        "white.critic": "random",
        "black": "random",
        "red": "expert",
    }
    alone = seated({}, {"": "majority"}, {"second": "random"})
    assert alone == ("players", {"second": "random"}, "team=majority")
    assert AgentAndModel.parse("--player", "white", "react") == ("react", "")
    with pytest.raises(InputError, match="--player white=@ names nobody; write NAME=AGENT@MODEL"):
        AgentAndModel.parse("--player", "white", "@")


def test_teams_play_against_teams_and_players(tmp_path: Path, team: str) -> None:
    results = pa.evaluate(
        KUHN,
        teams={"player0": "majority", "player1": team},
        model="random",
        n=4,
        workers=0,
        run=tmp_path / "run",
        progress=False,
    )
    with RunFolder.read(tmp_path / "run") as run:
        episodes = run.database.episodes("eval/test")
    assert len(episodes) == 4
    members = [f"player0.{name}" for name in ("first", "second", "third")]
    others = ["player1.author", "player1.critic"]
    for episode in episodes:
        totals = episode.results
        assert sorted(totals) == sorted([*members, *others])
        assert {totals[name] for name in members} == {-totals[name] for name in others}
    assert "mean share of speech" in str(results)


def test_the_command_line_seats_teams_beside_players(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    command = ["eval", "--env", KUHN, "-n", "4", "--workers", "0", "--run", run, "--json"]
    seats = [
        "--team",
        "player0=majority",
        "--role",
        "player0=random",
        "--player",
        "player1=@random",
    ]
    assert main([*command, *seats]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["talk"]["shares"]) >= {"player0.first", "player0.third"}
    assert result["players"].keys() == {
        "player0.first", "player0.second", "player0.third", "player1"
    }  # fmt: skip
    assert main(["show", run, "eval/test/0.0"]) == 0
    assert "player0.first" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--player player0=@random", "Nobody plays for player1 in 'openspiel/kuhn_poker:self'"),
        ("--team player0=majority --role player0=random", "Nobody plays for player1"),
        ("--team dan=majority --model random", "names the player 'dan', who does not play"),
        ("--team majority --model random", "does not say for which player 'majority' acts"),
        ("--team majority --team review", "--team review is a second team; write --team PLAYER="),
        ("--team player0=majority --player player0=@random", "both say who plays for player0"),
        ("--team player0=majorty --model random", "Did you mean 'majority'"),
        ("--team player0=majority --agent react --model random", "each say who acts"),
        ("--team player0= --model random", "is incomplete; write --team NAME=TEAM"),
        ("--player-turn-seconds 0 --model random", "leaves nothing to do; give more than 0"),
    ],
)
def test_seats_that_cannot_be_filled_are_refused_in_a_sentence(
    options: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "--env", KUHN, *options.split()]) == 2
    said = capsys.readouterr().err
    assert error in said and said.count("\n") == 1


def test_a_team_in_an_environment_of_one_player_names_no_player() -> None:
    with pytest.raises(InputError, match="has a single one; write team=majority"):
        pa.evaluate("questions/things-2", teams={"white": "majority"}, model="random")


def test_teams_are_rated_beside_players(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    seats = [
        "--team",
        "player0=majority",
        "--role",
        "player0=random",
        "--player",
        "player1=@random",
    ]
    assert main(["eval", "--env", KUHN, "-n", "12", "--workers", "0", "--run", run, *seats]) == 0
    capsys.readouterr()
    assert main(["ratings", run, "--json"]) == 0
    rated = json.loads(capsys.readouterr().out)
    assert rated["games"] == 12
    assert {one["player"] for one in rated["players"]} == {"random", "team of 3: random"}


def test_processes_register_for_members_of_a_team_in_a_game(team: str) -> None:
    told = Path(team)
    told.write_text(told.read_text().replace('model = "random"', 'instructions = "Object."'))
    given = asked(
        KUHN,
        {"teams": {"player0": team}, "roles": {"player0.critic": "registered"}, "model": "random"},
    )
    assert roles_of(plan(given)[0]) == ({"player0.critic": "Object."}, [])
