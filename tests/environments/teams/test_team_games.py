"""Teams in the place of players: decisions in rounds, private talk, shared returns, forfeits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment, Stakes
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.task import Split, TaskSet
from palaestra.core.team_words import PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.registry import make, spec
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.test_game import Delayed, Kept, Killed, play, same

TALLY, RING = "tests.core.games:Tally", "tests.core.games:Ring"
KUHN = "openspiel/kuhn_poker:self"
TASK = TaskSet("game").task(Split.TRAIN, 0)
AGAINST = f"{TALLY}?team=ann:review,bob:majority"  # and cat alone


def begun(id: str) -> Environment:
    world = make(id)
    world.reset(TASK)
    return world


def says(text: str) -> ScriptedModel:
    return ScriptedModel(lambda messages: text)


@pytest.mark.parametrize(
    "id",
    [
        AGAINST,
        f"{TALLY}?team=bob:debate",
        f"{TALLY}?team=ann:majority&messages=all",
        f"{RING}?team=ann:review,bob:majority,cat:discussion",
        f"{KUHN}?team=player0:majority",
        "openspiel/matrix_pd:self?team=player0:majority,player1:review",
        "pettingzoo/rps:self?team=player_0:majority",
    ],
)
def test_games_with_teams_keep_the_contract(id: str) -> None:
    assert [found for found in check_environment(id) if not found.holds] == []


def test_members_are_players_and_have_one_return() -> None:
    found = spec(f"{KUHN}?team=player1:majority")
    members = tuple(f"player1.{name}" for name in ("first", "second", "third"))
    assert found.players == ("player0", *members)
    assert found.stakes.returns == "zero-sum" and found.stakes.teams == {"player1": members}
    assert found.stakes.sides(found.players) == [("player0",), members]
    episode = play(begun(f"{KUHN}?team=player1:majority"), PlayersAgent(), {"agent": says("Pass")})
    assert len({episode.results[member] for member in members}) == 1
    assert episode.results["player0"] == -episode.results[members[0]] != 0


def test_teams_decide_at_the_same_time_and_others_when_their_move_can_be_taken() -> None:
    world = begun(AGAINST)
    bobs = ("bob.first", "bob.second", "bob.third")
    assert acting_in(world) == ("ann.author", *bobs)
    for text in ("1", "2", "2", "3"):
        assert world.step(Action(text)).rewards == {}
    assert acting_in(world) == ("ann.reviewer",)  # bob has decided, and cat waits for ann
    assert not any(world.step(Action("accept")).rewards.values())
    assert acting_in(world) == ("cat",)
    told = world.step(Action("3"))
    assert told.rewards == {
        **dict.fromkeys(("ann.author", "ann.reviewer"), 1.0), **dict.fromkeys(bobs, 2.0), "cat": 3.0
    }  # fmt: skip
    assert told.reward == 3.0 and acting_in(world) == ("ann.author", *bobs)
    assert "Your team did: 1\nann, round 2. Last: ann 1, bob 2" in told.observation.text


def test_a_move_that_the_environment_refuses_is_decided_again_by_its_team_alone() -> None:
    world = begun(f"{TALLY}?team=ann:majority,bob:majority")
    for text in ("9", "9", "9", "2", "2"):
        assert world.step(Action(text)).info.get("refused") is None
    refused = world.step(Action("2"))
    assert refused.valid and refused.info["refused"] is True
    assert acting_in(world) == ("ann.first", "ann.second", "ann.third")
    assert "That was no valid action. ann: 1, 2 or 3." in refused.observation.text
    for text in ("1", "1", "1"):
        world.step(Action(text))
    assert acting_in(world) == ("cat",)


def test_what_is_said_in_a_team_stays_in_it() -> None:
    def models(ann: str, bob: str) -> Mapping[str, Model]:
        return {
            "agent": says("1"),
            "ann.reviewer": says(f"no: {ann}"),
            "bob.reviewer": says(f"accept: {bob}"),
        }

    id = f"{TALLY}?team=ann:review,bob:review"
    one = play(make(id), PlayersAgent(), models("amber", "birch"))
    two = play(make(id), PlayersAgent(), models("aspen", "birch"))
    for episode in (one, two):
        texts = dict.fromkeys(episode.results, "")
        for call in episode.calls:
            texts[call.role] += "\n".join(message.text for message in call.messages)
        assert "birch" in texts["bob.author"]
        assert not any(word in texts[who] for who in texts if who[0] != "b" for word in ("birch",))
        assert not any(word in texts[who] for who in texts if who[0] != "a" for word in ("no:",))
    seen = [
        [call.messages for call in episode.calls if not call.role.startswith("ann")]
        for episode in (one, two)
    ]
    assert seen[0] == seen[1]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_every_interleaving_of_two_teams_gives_the_same_episode(seed: int) -> None:
    rng = random.Random(seed)
    slow = play(make(AGAINST), PlayersAgent(), {"agent": Delayed(lambda: rng.randrange(6))})
    fast = play(make(AGAINST), PlayersAgent(), {"agent": Delayed(lambda: 0)})
    assert same(slow) == same(fast)
    assert len({step.before.turn for step in slow.steps}) == 6
    for step in slow.steps:
        assert step.call is not None and slow.calls[step.call].role == step.before.turn


def test_a_game_between_teams_that_is_killed_goes_on_at_the_event() -> None:
    whole = play(
        make(AGAINST), PlayersAgent(), {"agent": Delayed(lambda: 0)}, journal=(k := Kept())
    )
    for most in range(len(k.events)):
        rng, journal = random.Random(most), Kept(most)
        delayed = {"agent": Delayed(lambda rng=rng: rng.randrange(4))}
        with pytest.raises(Killed):
            play(make(AGAINST), PlayersAgent(), delayed, journal=journal)
        again = Kept()
        resumed = play(
            make(AGAINST), PlayersAgent(), delayed, journal=again, past=journal.events
        )  # fmt: skip
        assert same(resumed) == same(whole)
        assert len(journal.events) + len(again.events) == len(k.events)


def test_a_team_is_saved_between_its_decision_and_the_round() -> None:
    world, other = begun(AGAINST), make(AGAINST)
    for text in ("1", "2", "2", "3"):
        world.step(Action(text))
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key()
    for text in ("accept", "1", "2"):
        assert other.step(Action(text)) == world.step(Action(text))


def test_a_team_goes_on_without_a_member_that_forfeits() -> None:
    models = {"agent": says("1"), "bob.first": says(" "), "cat": says("3")}
    budget = Budget(invalid_actions=2)
    game = make(f"{TALLY}?team=bob:majority")
    episode = play(game, PlayersAgent(), models, player_budget=budget)
    players = episode.players
    assert [player for player, one in players.items() if one.forfeited] == ["bob.first"]
    assert players["bob.first"].total == -5.0 and players["bob.second"].total == 0.0
    assert episode.outcome.limit is None and players["cat"].total == 9.0


def test_a_team_that_decides_on_nothing_forfeits_for_its_player() -> None:
    silent = {"agent": says("1"), **{f"bob.{name}": says(PASS) for name in ("first", "second")}}
    silent["bob.third"] = says(PASS)
    ended = play(make(f"{TALLY}?team=bob:majority"), PlayersAgent(), silent)
    members = ("bob.first", "bob.second", "bob.third")
    assert ended.results == {"ann": 0.0, "cat": 0.0, **dict.fromkeys(members, -5.0)}
    assert ended.steps[-1].transition.terminated
    assert "decided on nothing" in ended.steps[-1].transition.observation.others["cat"]
    zero = play(
        make(f"{KUHN}?team=player0:majority"),
        PlayersAgent(),
        {"agent": says(PASS), "player1": says("Pass")},
    )
    assert set(zero.results.values()) == {-2.0, 2.0} and zero.results["player1"] == 2.0


def test_the_others_play_on_without_a_team_where_the_environment_has_an_idle_action() -> None:
    models = {"agent": says(PASS), "ann": says("2"), "cat": says("3")}
    episode = play(make(f"{RING}?team=bob:majority"), PlayersAgent(), models)
    totals = episode.results
    assert (totals["ann"], totals["cat"]) == (6.0, 9.0)
    assert {totals[f"bob.{name}"] for name in ("first", "second", "third")} == {-5.0}
    silent = play(
        make(f"{RING}?team=ann:majority,bob:majority,cat:majority"),
        PlayersAgent(),
        {"agent": says(PASS)},
    )
    assert set(silent.results.values()) == {-5.0}


@given(
    st.sampled_from(["zero-sum", "common", "general"]),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.floats(-10, 10),
)
def test_a_forfeit_keeps_the_returns_as_declared(
    returns: str, sizes: list[int], forfeit: float
) -> None:
    teams = {f"p{n}": tuple(f"p{n}.{i}" for i in range(k)) for n, k in enumerate(sizes) if k > 1}
    stakes = Stakes(returns, forfeit, teams=teams)  # type: ignore[arg-type]
    players = [m for n in range(len(sizes)) for m in teams.get(f"p{n}", (f"p{n}",))]
    sides = stakes.sides(players)
    assert len(sides) == len(sizes) and [p for side in sides for p in side] == players
    found = stakes.after_forfeit(players[0], dict.fromkeys(players, 0.0))
    assert found[players[0]] == forfeit
    assert all(len({found[player] for player in side}) == 1 for side in sides)
    if returns == "zero-sum":
        assert sum(found[side[0]] for side in sides) == pytest.approx(0.0)
    if returns == "common":
        assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("majority", "does not say for which player 'majority' acts"),
        ("dan:majority", "names the player 'dan', who does not play 'tests.core.games:Tally'"),
        ("ann:majority,ann:review", "names 'ann' twice; give each player one team"),
        ("ann:", "does not say for which player"),
        ("ann:majorty", "no team 'majorty'. Did you mean 'majority'"),
    ],
)
def test_teams_that_cannot_act_are_refused_in_a_sentence(value: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        spec(f"{TALLY}?team={value}")


def test_teams_in_each_other_are_refused_in_a_game(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[members.x]\nteam = "{file}"\n[members.y]\n[[stage]]\ndo = "act"\n')
    with pytest.raises(InputError, match="are in each other; take one of them out"):
        spec(f"{TALLY}?team=ann:{file}")
    with pytest.raises(InputError, match="has a single one; write team=majority"):
        spec("questions/things-2?team=ann:majority")
