"""Teams: who speaks and who decides, what each member sees, and files that cannot work."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Model
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.core.team_words import PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.families.questions.environment import Questions
from palaestra.environments.registry import spec
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.staged_protocol import Stages
from palaestra.environments.teams.team_environment import InTeam
from palaestra.environments.teams.team_file import Team, load, templates
from palaestra.environments.teams.votes import approval, borda, majority, parse_ballot
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

TASK = TaskSet("questions/things-2").task(Split.TRAIN, 0)


def team(**keys: object) -> Team:
    return Team.model_validate({"members": {"ann": {}, "bob": {}, "cat": {}}, **keys})


def replies(protocol: Stages, *given: str) -> str | None:
    """Give replies to a protocol in its order; return the decision."""
    decision = None
    for text in given:
        assert decision is None
        assert protocol.refusal(text) is None
        decision = protocol.take(protocol.next()[0], text)
    return decision


def test_proposals_are_counted_and_made_at_the_same_time() -> None:
    protocol = Stages(load("majority"), 0)
    assert protocol.next() == ["first", "second", "third"]
    assert replies(protocol, "Left.", "right", "left") == "Left."
    protocol.begin_turn()
    assert replies(protocol, PASS, PASS, "right") == "right"
    protocol.begin_turn()
    assert replies(protocol, PASS, PASS, PASS) == PASS


def test_a_review_is_repeated_until_it_accepts_or_is_out_of_rounds() -> None:
    protocol = Stages(load("review"), 0)
    assert replies(protocol, "left", "no", "right", "Accept, good") == "right"
    protocol.begin_turn()
    assert replies(protocol, "a", "no", "b", "no", "c", "no") == "c"


def test_a_debate_is_heard_in_order_and_the_judge_decides() -> None:
    protocol = Stages(load("debate"), 0)
    asked = []
    for text in ("a", "b", "for a", "for b", "again a", "again b", "b"):
        asked.append(protocol.next()[0])
        decision = protocol.take(asked[-1], text)
    assert asked == ["left", "right", "left", "right", "left", "right", "judge"]
    assert decision == "b"
    assert [line for _, line in protocol.said()][-2:] == ["left: again a", "right: again b"]


def test_a_moderator_gives_the_word_and_bids_win_it() -> None:
    protocol = Stages(load("discussion"), 0)
    assert protocol.refusal("everybody") == "Name one of planner, critic, or say: done."
    assert replies(protocol, "planner, please") is None and protocol.next() == ["planner"]
    assert replies(protocol, "go left", "done") is None
    assert protocol.next() == ["moderator"] and replies(protocol, "left") == "left"
    auction = Stages(team(stage=[{"do": "bid", "times": 2}, {"do": "act", "who": ["cat"]}]), 0)
    assert auction.next() == ["ann", "bob", "cat"] and auction.refusal("lots") is not None
    assert replies(auction, "1", "3", PASS) is None and auction.next() == ["bob"]
    assert replies(auction, "hello", PASS, PASS, PASS) is None and auction.next() == ["cat"]


def test_a_member_with_the_right_to_halt_ends_the_talk() -> None:
    members = {"ann": {}, "boss": {"rights": ["send", "halt"]}}
    stages = [{"do": "talk", "order": "file", "times": 5}, {"do": "act", "who": ["ann"]}]
    protocol = Stages(Team.model_validate({"members": members, "stage": stages}), 0)
    assert replies(protocol, "hello", "halt") is None
    assert protocol.stage.do == "act"


def test_a_member_that_passes_is_replaced_by_the_next_one_that_may_act() -> None:
    protocol = Stages(team(stage=[{"do": "act"}]), 0)
    assert protocol.next() == ["ann"]
    assert replies(protocol, PASS, "left") == "left"


def test_a_random_order_follows_from_seed_and_turn() -> None:
    stages = [{"do": "talk", "order": "random"}, {"do": "act", "who": ["ann"]}]

    def order(seed: int) -> list[str]:
        protocol = Stages(team(stage=stages), seed)
        found = []
        for _ in range(3):
            found += protocol.next()
            protocol.take(found[-1], "hello")
        return found

    assert order(1) == order(1) and len({tuple(order(seed)) for seed in range(20)}) > 3


def test_ballots() -> None:
    assert parse_ballot("2 > 1 > 3", 3) == [1, 0, 2] and parse_ballot("none", 3) == []
    assert parse_ballot("4", 3) is None and parse_ballot("the 1st", 3) is None
    assert majority(["b", "a", "A!"]) == "a"
    assert approval([[0, 1], [1], [2]], 3) == 1 and approval([[]], 2) == 0
    # four prefer 0 > 1 > 2, three 1 > 2 > 0: Borda elects 1, plurality 0 (Borda 1781)
    assert borda([[0, 1, 2]] * 4 + [[1, 2, 0]] * 3, 3) == 1
    assert borda([[2]], 3) == 2


@settings(max_examples=60)
@given(
    st.sampled_from(templates()),
    st.lists(st.sampled_from(["left", "right", PASS, "accept", "1", "done", "planner"])),
)
def test_a_protocol_always_asks_somebody_and_survives_being_saved(
    name: str, given_replies: list[str]
) -> None:
    protocol = protocol_of(load(name), 3)
    for text in given_replies:
        assert protocol.next() and set(protocol.next()) <= set(protocol.team.members)
        again = protocol_of(protocol.team, 3)
        again.restore(json.loads(json.dumps(protocol.saved())))
        assert (again.next(), again.asked()) == (protocol.next(), protocol.asked())
        protocol = again
        if protocol.refusal(text) is None and protocol.take(protocol.next()[0], text) is not None:
            protocol.begin_turn()


def run(environment: Environment, models: dict[str, Model]) -> Episode:
    world = LocalEnvironment(environment)
    bound = {role: model.for_environment(world) for role, model in models.items()}
    budget = Budget(turns=40)
    session = Session(Key("test", 0), TASK, world, PlayersAgent(), bound, budget=budget)
    return asyncio.run(session.run())


def things(name: str) -> InTeam:
    return InTeam(Questions("things-2"), name)


@pytest.mark.parametrize("name", templates())
def test_a_team_of_experts_solves_by_every_template(name: str) -> None:
    episode = run(things(name), {"agent": ExpertModel(PlayersAgent())})
    assert episode.outcome.solved
    assert set(episode.results.values()) == {1.0}
    assert {call.role for call in episode.calls} <= set(load(name).members)


def test_members_see_what_they_may_and_only_what_is_new() -> None:
    script = ScriptedModel(lambda messages: "colour")
    judge = ScriptedModel(lambda messages: "red big")
    episode = run(things("debate"), {"agent": script, "judge": judge})
    first = {role: next(c for c in episode.calls if c.role == role) for role in ("left", "judge")}
    assert first["left"].messages[-1].text == (
        "You are left, in a team with right, judge. Argue for the action that you think is right.\n"
        "Which thing is it?\nPropose an action."
    )
    assert (
        first["judge"]
        .messages[-1]
        .text.endswith(
            "left proposes: colour\nright proposes: colour\nDecide: reply with the action."
        )
    )
    second = [call for call in episode.calls if call.role == "left"][1]
    assert second.messages[-1].text == ("right proposes: colour\nSay something to your team.")


def test_in_a_majority_nobody_sees_the_others_proposals() -> None:
    episode = run(
        things("majority"),
        {"agent": ScriptedModel(lambda messages: "colour")},
    )
    texts = [m.text for call in episode.calls for m in call.messages]
    assert not any("proposes" in text for text in texts)


def test_an_action_that_the_environment_refuses_is_told_to_the_team() -> None:
    world = things("majority")
    world.reset(TASK)
    for _ in range(2):
        assert world.step(Action("jump")).valid
    refused = world.step(Action("jump"))
    assert refused.info["refused"] is True
    assert "That was no valid action." in refused.observation.text
    assert acting_in(world) == ("first", "second", "third")


def test_a_team_that_decides_on_nothing_has_failed() -> None:
    world = things("majority")
    world.reset(TASK)
    for _ in range(2):
        world.step(Action(PASS))
    over = world.step(Action(PASS))
    assert over.terminated and not over.success
    assert over.observation.text == "The team decided on nothing."


def test_a_team_is_saved_in_the_middle_of_its_turn() -> None:
    world = things("review")
    world.reset(TASK)
    world.step(Action("red big"))
    other = things("review")
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key() and acting_in(other) == ("reviewer",)
    seen = [each.step(Action("accept")) for each in (world, other)]
    assert seen[0] == seen[1] and seen[0].terminated


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ('do = "talk"', "must decide in its last stage"),
        ('do = "count"', "counts proposals, and no stage proposes"),
        ('do = "act"\nwho = ["dan"]', "names 'dan' in stage 1 .act., who is no member"),
        ('do = "act"\nwho = ["bob"]', "lets 'bob' take part in .* without the right 'act'"),
        ('do = "act"\nwho = ["ann"]\ntimes = 2', "repeats stage 1 .act., which decides"),
        ('do = "moderate"\n[[stage]]\ndo = "act"\nwho = ["ann"]', "must name `by`"),
        ('do = "act"\nwho = ["ann"]\nback = 1', "goes back 1 stages from stage 1"),
        ('do = "act"\nwho = ["ann"]\n[edges]\nann = ["bob"]', "must set edges"),
        (
            'do = "act"\nwho = ["ann"]\n[members.cat]\nlate = "forfeit"',
            "says what happens if 'cat' is late, and not when; set turn_seconds",
        ),
        (
            'do = "act"\nwho = ["ann"]\n[members.cat]\nteam = "majority"\ntokens = 5\n'
            'agent = "react"',
            "gives 'cat' a team, whose file has its members' agent, tokens; drop them",
        ),
        ('do = "sing"', "'stage.0.do': Input should be 'talk', 'propose'"),
        ("do", "is no TOML"),
    ],
)
def test_a_team_that_could_not_act_is_refused_in_a_sentence(
    tmp_path: Path, change: str, error: str
) -> None:
    file = tmp_path / "team.toml"
    members = '[members.ann]\n[members.bob]\nrights = ["send"]\n'
    file.write_text(f"{members}[[stage]]\n{change}\n")
    with pytest.raises(InputError, match=error):
        load(str(file))


def test_bad_names() -> None:
    with pytest.raises(UnknownName, match="majority"):
        spec("questions/things-2?team=majorty")


@pytest.mark.slow
@pytest.mark.parametrize("name", templates())
def test_every_template_keeps_the_contract(name: str) -> None:
    broken = [f for f in check_environment(f"questions/things-2?team={name}") if not f.holds]
    assert broken == []


NESTED = """
[members.group]
team = "majority"
instructions = "You propose."
[members.critic]
instructions = "Say what is wrong, or: accept."
rights = ["send"]
[[stage]]
do = "propose"
who = ["group"]
[[stage]]
do = "talk"
who = ["critic"]
times = 2
back = 1
until = "accept"
[[stage]]
do = "count"
"""


def test_a_team_takes_a_member_s_place_and_its_talk_stays_in_it(tmp_path: Path) -> None:
    file = tmp_path / "nested.toml"
    file.write_text(NESTED)
    world = things(str(file))
    inner = ("group.first", "group.second", "group.third")
    assert world.spec.players == (*inner, "critic")
    first = world.reset(TASK)
    assert first.text == (
        "You are group.first, in a team with second, third. Your team is group among critic. You "
        "propose.\nWhich thing is it?\nYour team group is asked: Propose an action.\n"
        "Propose an action."
    )
    assert acting_in(world) == inner
    for reply in ("red big", "blue big", "red big"):
        told = world.step(Action(reply))
    assert acting_in(world) == ("critic",)
    assert told.observation.text.endswith("group proposes: red big\nSay something to your team.")
    other = things(str(file))
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key()
    world.step(Action("no"))
    assert acting_in(world) == inner and "critic: no" in world.observe("group.first").text
    episode = run(things(str(file)), {"agent": ExpertModel(PlayersAgent())})
    assert episode.outcome.solved and set(episode.results) == {*inner, "critic"}
    broken = [f for f in check_environment(f"questions/things-2?team={file}") if not f.holds]
    assert broken == []


def test_teams_in_each_other_are_refused(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{one}.toml").write_text(
            f'[members.x]\nteam = "{tmp_path}/{other}.toml"\n[members.y]\n[[stage]]\ndo = "act"\n'
        )
    with pytest.raises(InputError, match=r"b\.toml are in each other; take one of them out"):
        load(f"{tmp_path}/a.toml")
