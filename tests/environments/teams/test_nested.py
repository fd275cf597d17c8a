"""Teams in members' places: the record has what each of them decided, and by what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.environment import Action
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.task import Split, TaskSet
from palaestra.environments.families.questions.environment import Questions
from palaestra.environments.teams.protocol import facts_of
from palaestra.environments.teams.team_environment import InTeam
from palaestra.environments.teams.team_file import load
from palaestra.evaluation.statistics.conversation import conversation
from palaestra.viewer.sequence_chart import sequence_chart
from tests.evaluation.statistics.test_conversation import run

TASK = TaskSet("questions/things-2").task(Split.TRAIN, 0)
PAIR = '[members.{}]\nteam = "{}"\n[members.boss]\n'
PROPOSE = '[[stage]]\ndo = "propose"\nwho = ["{}"]\n'
DECIDE = '[[stage]]\ndo = "act"\nwho = ["boss"]\n'


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """Return a team whose member `crew` is a team, whose member `net` is a network of four."""
    inner, outer = tmp_path / "inner.toml", tmp_path / "outer.toml"
    inner.write_text(PAIR.format("net", "network") + '[[stage]]\ndo = "act"\nwho = ["net"]\n')
    outer.write_text(PAIR.format("crew", inner) + PROPOSE.format("crew") + DECIDE)
    return outer


def test_the_step_that_decided_has_the_facts_of_all_teams_that_it_decided(nested: Path) -> None:
    world = InTeam(Questions("things-2"), str(nested))
    world.reset(TASK)
    names = ("first", "second", "third", "fourth")
    assert acting_in(world) == tuple(f"crew.net.{name}" for name in names)
    notes = [world.step(Action(text)).info["team"] for text in ["red big"] * 4]
    assert all("within" not in note for note in notes[:3])
    importance = dict.fromkeys(names, 0.25)  # one layer agreed: each of four has its equal share
    facts = {"importance": importance, "layers": 1}
    assert notes[3]["within"] == {
        "crew.net": {"did": "red big", "facts": facts},
        "crew": {"did": "red big", "facts": {}},
    }
    last = world.step(Action("blue big")).info["team"]
    assert last["did"] == "blue big" and "within" not in last


def test_facts_are_read_by_place_and_the_chart_has_each_voice(nested: Path) -> None:
    inner = {f"crew.net.{name}": ["red big"] for name in ("first", "second", "third", "fourth")}
    episode = run(InTeam(Questions("things-2"), str(nested)), {**inner, "boss": ["blue big"]}, "x")
    assert facts_of(episode) == []
    (facts,) = facts_of(episode, "crew.net")
    assert facts["layers"] == 1
    found = conversation(episode)
    assert found.moves[3].within == {"crew.net": "red big", "crew": "red big"}
    assert found.members["crew.net.fourth"].does == {"propose": 1}
    drawn = sequence_chart(found, lambda step: f"#{step}")
    assert drawn.count("<b>crew.net</b>, as a team, replies: <q>red big</q>") == 1
    assert drawn.count("<b>crew</b>, as a team, ") == 1  # it proposes, which others read


def test_the_command_reads_and_writes_the_team_in_a_members_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner, outer, run_folder = tmp_path / "routes.toml", tmp_path / "outer.toml", tmp_path / "run"
    inner.write_text("[members.ann]\n[members.bob]\n[routing]\n")
    outer.write_text(PAIR.format("crew", inner) + PROPOSE.format("crew") + DECIDE)
    asked = ["eval", "--env", "questions/things-2", "--team", str(outer), "--model", "expert"]
    assert main([*asked, "-n", "6", "--run", str(run_folder), "--workers", "0"]) == 0
    capsys.readouterr()
    learned = tmp_path / "learned.toml"
    given = ["team", str(run_folder), "--of", "crew"]
    assert main([*given, "--to", str(learned), "--json"]) == 0
    members = json.loads(capsys.readouterr().out)["members"]
    assert [one["member"] for one in members] == ["ann", "bob"]
    done = sum(one["done"] for one in members)
    assert sum(one["solved"] for one in members) == done >= 6  # experts solve, one turn or more
    routing = load(str(learned)).routing
    assert routing is not None and sum(map(len, routing.past.values())) == done
    assert main(["team", str(run_folder)]) == 2
    assert "--of names one of its own: crew" in capsys.readouterr().err
    assert main(["team", str(run_folder), "--of", "boss"]) == 2
    assert "No team is in the place of 'boss'" in capsys.readouterr().err
