"""Layouts of the dialogue between a planner and robots: who speaks when, and who hears whom."""

from __future__ import annotations

import pytest

from palaestra.core.errors import InputError, UnknownName
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.teams.layouts import LAYOUTS
from palaestra.environments.teams.staged_protocol import Stages
from palaestra.environments.teams.team_file import load


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_has_as_many_robots_as_its_name_says(layout: str) -> None:
    members = load(f"{layout}:5").members
    assert [m for m in members if m != "central"] == [f"robot{k}" for k in range(1, 6)]
    assert ("central" in members) == (layout != "dmas")


@pytest.mark.parametrize(("name", "most"), [("dmas:2", 7), ("hmas-1:2", 8), ("hmas-2:2", 9)])
def test_replies_of_a_turn_are_bounded(name: str, most: int) -> None:
    assert Stages(load(name), 0).most_replies() == most


def speakers(name: str, *replies: str) -> tuple[list[str], str | None]:
    """Give replies; return who gave them, and the decision."""
    protocol, found, decision = Stages(load(name), 0), list[str](), None
    for text in replies:
        assert decision is None
        found.append(protocol.next()[0])
        decision = protocol.take(found[-1], text)
    return found, decision


def test_robots_talk_one_after_another_until_all_accept() -> None:
    found = speakers("dmas:2", "box A east", "wait", "accept", "accept", "robot1: box A east")
    assert found == (["robot1", "robot2", "robot1", "robot2", "robot2"], "robot1: box A east")
    found = speakers("hmas-1:2", "plan", "accept", "accept", "plan")
    assert found == (["central", "robot1", "robot2", "robot2"], "plan")


def test_the_central_planner_proposes_again_until_all_accept() -> None:
    found = speakers("hmas-2:2", "plan", "accept", "wait", "other", "accept", "accept")
    order = ["central", "robot1", "robot2"]
    assert found == (order * 2, "other")
    team = load("hmas-2:2")
    assert team.sees("central", "robot2") and team.sees("robot1", "central")
    assert not team.sees("robot1", "robot2")


def test_a_layout_without_a_number_of_robots_is_refused() -> None:
    with pytest.raises(InputError, match="write dmas:2 to dmas:32"):
        load("dmas:1")
    with pytest.raises(InputError, match="needs a number of robots"):
        load("hmas-2:many")
    with pytest.raises(UnknownName):
        load("hmas-3:2")


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_grid_with_a_team_keeps_the_contract(clause: object) -> None:
    assert callable(clause)
    clause(Subject.of("boxes/2?team=hmas-2:2", per_split=1))
