"""Supervisors: what repeats, what they are asked and what they halt; members that come and go."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action
from palaestra.core.message import user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.task import Split, TaskSet
from palaestra.core.team_words import ASKED, GO_ON, HALT, PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.families.questions.environment import Questions
from palaestra.environments.teams.protocol import Protocol, protocol_of
from palaestra.environments.teams.team_environment import InTeam
from palaestra.environments.teams.team_file import Team
from palaestra.models.scripted.reader import ReaderModel
from palaestra.rollout.guarded_environment import LocalEnvironment

TASK = TaskSet("questions/things-2").task(Split.TRAIN, 0)
TALK_THEN_ACT = [
    {"do": "talk", "who": ["ann"], "times": 9},
    {"do": "act", "who": ["bob"]},
]


def supervised(stages: Sequence[dict[str, object]] = TALK_THEN_ACT, repeats: int = 3) -> Protocol:
    members = {"ann": {}, "bob": {}, "boss": {"rights": ["halt"]}}
    supervisor = {"member": "boss", "repeats": repeats}
    team = {"members": members, "supervisor": supervisor, "stage": stages}
    return protocol_of(Team.model_validate(team), 0)


def give(protocol: Protocol, *replies: str) -> str | None:
    """Give replies to a protocol in its order; return the decision."""
    decision = None
    for text in replies:
        assert decision is None
        assert protocol.refusal(text) is None
        decision = protocol.take(protocol.next()[0], text)
    return decision


def test_who_says_the_same_three_times_is_halted_and_the_turn_goes_on() -> None:
    protocol = supervised()
    give(protocol, "hello", "what?", "Hello.")
    assert protocol.next() == ["ann"]
    give(protocol, "hello")
    assert protocol.next() == ["boss"]
    assert protocol.asked() == "Said 3 times in this turn: ann: hello\nSay: halt, or: go on."
    assert protocol.refusal("maybe") == "Say: halt, or: go on."
    assert give(protocol, HALT) is None
    assert protocol.next() == ["bob"] and give(protocol, "left") == "left"


@pytest.mark.parametrize("reply", [GO_ON, PASS])
def test_a_team_that_may_go_on_is_counted_from_the_beginning(reply: str) -> None:
    protocol = supervised(repeats=2)
    give(protocol, "hello", "hello", reply, "hello")
    assert protocol.next() == ["ann"]
    give(protocol, "hello")
    assert protocol.next() == ["boss"]


def test_what_is_said_in_another_turn_is_no_repetition() -> None:
    protocol = supervised([{"do": "talk", "who": ["ann"]}, {"do": "act", "who": ["bob"]}], 2)
    for turn in range(3):
        assert give(protocol, "hello", f"act {turn}") == f"act {turn}"
        protocol.begin_turn()


@pytest.mark.parametrize(("reply", "decision"), [(HALT, PASS), (GO_ON, "Left")])
def test_an_action_that_repeats_waits_for_the_supervisor(reply: str, decision: str) -> None:
    protocol = supervised([{"do": "act", "who": ["bob"]}])
    for action in ("right", "left", "left."):
        assert give(protocol, action) == action
        protocol.begin_turn()
    assert give(protocol, "Left") is None and protocol.next() == ["boss"]
    assert protocol.asked().startswith("The same action, 3 times in a row: Left\n")
    assert give(protocol, reply) == decision
    if decision != PASS:  # the action that was taken is the first one of a new row
        protocol.begin_turn()
        assert give(protocol, "left") == "left"
        protocol.begin_turn()
        assert give(protocol, "left") is None


def test_a_state_that_repeats_ends_the_episode_if_the_supervisor_halts() -> None:
    protocol = supervised([{"do": "act", "who": ["bob"]}])
    protocol.begin("start", "A")
    for action, state in (("1", "B"), ("2", "A"), ("3", "B"), ("4", "A")):
        assert protocol.next() == ["bob"]
        give(protocol, action)
        protocol.begin_turn("seen", state)
    assert protocol.next() == ["boss"]
    assert protocol.asked().startswith("The environment is in the same state as 2 times before.")
    assert give(protocol, HALT) == PASS


def test_members_that_reply_at_the_same_time_are_not_interrupted() -> None:
    stages = [{"do": "propose", "times": 5, "until": "agreement"}, {"do": "count"}]
    protocol = supervised(stages, 2)
    assert protocol.next() == ["ann", "bob"]  # the supervisor takes part where it is named
    give(protocol, "left", "right", "left")
    assert protocol.next() == ["bob"]
    give(protocol, "down")
    assert protocol.next() == ["boss"]
    give(protocol, HALT)
    assert give(protocol, "up", "down") == "up"  # the round that had begun is the last one


def test_a_member_is_brought_in_by_one_with_the_right_and_stays() -> None:
    members = {"ann": {"rights": ["act", "send", "spawn"]}, "spare": {"reserve": True}}
    stages = [{"do": "talk", "who": ["ann"]}, {"do": "propose"}, {"do": "count"}]
    team = Team.model_validate({"members": members, "stage": stages})
    protocol = protocol_of(team, 0)
    give(protocol, "spawn nobody")
    assert protocol.next() == ["ann"] and give(protocol, "a") == "a"
    protocol.begin_turn("seen")
    give(protocol, "Spawn spare")
    assert protocol.next() == ["ann", "spare"]
    assert [line for _, line in protocol.said()][-1] == "ann: Spawn spare"
    assert give(protocol, "a", "b") == "a"
    protocol.begin_turn("seen")
    give(protocol, "hello")
    assert protocol.next() == ["ann", "spare"]


def test_members_of_stages_come_and_go_with_the_turns_of_the_environment() -> None:
    members = {"ann": {}, "early": {"until_turn": 1}, "late": {"from_turn": 3}}
    team = Team.model_validate({"members": members, "stage": [{"do": "propose"}, {"do": "count"}]})
    protocol = protocol_of(team, 0)
    acting = []
    for _ in range(3):
        acting.append(protocol.next())
        give(protocol, *["a"] * len(acting[-1]))
        protocol.begin_turn("seen")
    assert acting == [["ann", "early"], ["ann"], ["ann", "late"]]


FILE = """
[members.author]
[members.critic]
rights = ["send", "spawn"]
[members.boss]
rights = ["halt"]
[members.extra]
reserve = true
[members.late]
from_turn = 2
until_turn = 3
[supervisor]
member = "boss"
repeats = 2
[[stage]]
do = "propose"
who = ["author", "extra", "late"]
[[stage]]
do = "talk"
who = ["critic"]
times = 3
back = 1
until = "accept"
[[stage]]
do = "count"
"""


@pytest.mark.parametrize("environment", ["questions/things-2", "babyai/GoToLocalS5N2"])
def test_a_supervised_team_keeps_the_contract(environment: str, tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text(FILE)
    broken = check_environment(f"{environment}?team={tmp_path}/team.toml")
    assert [finding for finding in broken if not finding.holds] == []


def test_a_halted_episode_has_failed(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text(FILE)
    world = InTeam(Questions("things-2"), f"{tmp_path}/team.toml")
    world.reset(TASK)
    for reply in ("colour", "accept", "colour"):
        world.step(Action(reply))
    world.step(Action(PASS))  # of the member that came in turn 2
    world.step(Action("accept"))
    assert acting_in(world) == ("boss",)
    over = world.step(Action(HALT))
    assert over.terminated and not over.success


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from(["a", "ab", "abc"]))
def test_every_turn_ends_within_the_stated_replies_and_survives_being_saved(
    seed: int, repeats: int, letters: str
) -> None:
    stages = [
        {"do": "propose"},
        {"do": "talk", "times": 4, "back": 1, "until": "accept", "order": "file"},
        {"do": "count"},
    ]
    protocol, rng = supervised(stages, repeats), random.Random(seed)
    for turn in range(5):
        for _ in range(protocol.most_replies()):
            again = supervised(stages, repeats)
            again.restore(json.loads(json.dumps(protocol.saved())))
            assert (again.next(), again.asked()) == (protocol.next(), protocol.asked())
            assert again.key() == protocol.key()
            protocol = again
            asked = protocol.next() == ["boss"]
            decision = protocol.take(protocol.next()[0], GO_ON if asked else rng.choice(letters))
            if decision is not None:
                break
        else:
            raise AssertionError(f"turn {turn} has more replies")
        protocol.begin_turn("seen", rng.choice(letters))


@pytest.mark.parametrize(("said", "reply"), [("RIGHT", GO_ON), ("left", HALT)])
def test_a_reader_halts_what_repeats_unless_it_is_right(said: str, reply: str) -> None:
    world = LocalEnvironment(Questions("things-2"))
    asyncio.run(world.reset(TASK))
    said = said.replace("RIGHT", asyncio.run(world.answer()).text)
    model = ReaderModel(DirectAgent()).for_environment(world)
    question = f"The same action, 3 times in a row: {said}\n{ASKED['supervise']}"
    prompt = Prompt([user(question)], None, Sampling(), 0)
    assert asyncio.run(model.generate(prompt)).text == reply
