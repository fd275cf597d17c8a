"""Conversations: everything that was said is counted once, to those who were shown it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.environments.channels.talking import Messages
from palaestra.environments.registry import make
from palaestra.evaluation.reports.report import as_json, build
from palaestra.evaluation.reports.report_files import markdown
from palaestra.evaluation.statistics.conversation import (
    Traffic,
    conversation,
    member_rows,
    talk_json,
    talk_of,
    talk_rows,
)
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.facts import games_by_phase
from tests.core.games import Ring, Tally

CHANNELS = """per_turn = 2
[channels.all]
[channels.slow]
delay = 4
loss = 0.3
[boards.plan]
"""
SAYINGS = (
    *("1", "2", "3", "what?"),
    "send_message(to='all', text='one two three')",
    "send_message(to='bob', text='näher')",
    "send_message(to='ann, cat', text='later', channel='slow')",
    "send_message(to='dan', text='nobody')",
    "write_board(board='plan', key='k', value='v w')",
    "read_board(board='plan')",
)


def run(environment: Environment, replies: dict[str, list[str]], otherwise: str) -> Episode:
    """Play an episode in which each player replies with its own texts, then the other one."""

    def model(name: str) -> ScriptedModel:
        left = list(replies.get(name, ()))
        return ScriptedModel(lambda _: left.pop(0) if left else otherwise, name=name)

    players = environment.spec.players
    session = Session(
        Key("eval/test", 0),
        TaskSet("questions/things-2").task(Split.TEST, 0),
        LocalEnvironment(environment),
        PlayersAgent(),
        {player: model(player) for player in players},
        budget=Budget(turns=60, invalid_actions=3),
    )
    return asyncio.run(session.run())


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("channels") / "talk.toml"
    path.write_text(CHANNELS)
    return str(path)


@given(
    said=st.fixed_dictionaries(
        {name: st.lists(st.sampled_from(SAYINGS), max_size=8) for name in ("ann", "bob", "cat")}
    ),
    ring=st.booleans(),
)
def test_what_was_recorded_is_counted_and_shares_sum_to_one(
    channels: str, said: dict[str, list[str]], ring: bool
) -> None:
    episode = run(Messages(Ring() if ring else Tally(), channels), said, "1")
    found = conversation(episode)
    infos = [step.transition.info for step in episode.steps]
    sent = [info for info in infos if "message" in info]
    written = [info for info in infos if "version" in info]
    assert sorted(line.step for line in found.lines) == [
        step.index for step in episode.steps if "message" in step.transition.info
    ]
    counted = Counter(info["channel"] for info in sent) + Counter(i["board"] for i in written)
    assert {name: of.messages for name, of in found.channels.items()} == dict(counted)
    assert sum(of.bytes for of in found.channels.values()) == sum(
        info["bytes"] for info in (*sent, *written)
    )
    shown = [n for info in infos for numbers in info.get("shown", {}).values() for n in numbers]
    assert sum(found.edges().values()) == len(shown)
    assert sum(one.heard for one in found.members.values()) == len(shown)
    thirds = [found.edges(a, a + 7) for a in range(0, len(episode.steps), 7)]
    assert sum((Counter(part) for part in thirds), Counter()) == Counter(found.edges())
    shares = [one.share for one in found.members.values()]
    assert shares == [None] * 3 if not sent else sum(filter(None, shares)) == pytest.approx(1.0)
    for player, one in found.members.items():
        own = [step for step in episode.steps if step.before.turn == player]
        assert sum(one.does.values()) == len(own)
        assert one.calls == sum(call.role == player for call in episode.calls)


def test_words_bytes_and_readers_by_hand(channels: str) -> None:
    said = {"ann": [SAYINGS[4], "3"], "bob": ["2", SAYINGS[5].replace("bob", "ann"), "2"]}
    episode = run(Messages(Tally(), channels), said, "1")
    found = conversation(episode)
    first, second = found.lines
    assert (first.speaker, first.to, first.text) == ("ann", ("bob", "cat"), "one two three")
    assert first.shown == {"bob": 3, "cat": 3}  # the step that ended the first round
    assert (second.text, second.bytes, second.shown) == ("näher", 6, {"ann": 7})
    assert found.edges() == {("ann", "bob"): 1, ("ann", "cat"): 1, ("bob", "ann"): 1}
    ann = found.members["ann"]
    assert (ann.words, ann.share, ann.heard) == (3, 0.75, 1)
    assert ann.sent == {"all": Traffic(1, 13)}
    assert ann.does == {"message": 1, "act": 3}
    assert [move.acted for move in found.moves[:4]] == [None, "3", "2", "1"]
    rows = {row[0]: row for row in member_rows(found)}
    assert rows["ann"][-2:] == ["sent messages 1, acted 3", "all 1 (13 bytes)"]
    talk = talk_of([found, conversation(run(Tally(), {}, "1"))])
    assert talk is not None and talk.episodes == 1
    assert talk_rows(talk_json(talk)["talk"]) == [
        ("mean share of speech", "ann 75 %, bob 25 %, cat 0 %"),
        ("messages by channel", "all 2 (19 bytes)"),
    ]


def test_members_of_a_team_are_heard_by_those_who_see_them() -> None:
    replies = {
        "author": ["red big", "blue big"],
        "reviewer": ["no, blue", "accept"],
    }
    found = conversation(run(make("questions/things-2?team=review"), replies, "(pass)"))
    assert [(line.speaker, line.does, line.shown) for line in found.lines] == [
        ("author", "propose", {"reviewer": 0}),
        ("reviewer", "talk", {"author": 1}),
        ("author", "propose", {"reviewer": 2}),
        ("reviewer", "talk", {}),
    ]
    assert found.members["author"].does == {"propose": 2}
    assert found.members["reviewer"].does == {"talk": 2}
    assert [move.acted for move in found.moves] == [None, None, None, "blue big"]


def test_a_selector_who_sees_nobody_is_shown_the_proposals_when_it_decides() -> None:
    replies = {"first": ["red big"], "second": ["colour"], "selector": ["red big"]}
    found = conversation(run(make("questions/things-2?team=select"), replies, "(pass)"))
    assert found.edges() == {("first", "selector"): 1, ("second", "selector"): 1}
    assert found.members["third"].does == {"pass": 1}
    assert found.members["selector"].does == {"act": 1}
    replies = {name: ["red big", "red big"] for name in ("first", "second", "third")}
    replies |= {"critic": ["well"], "selector": ["red big"]}
    again = conversation(run(make("questions/things-2?team=scatter"), replies, "(pass)"))
    assert again.edges(0, 3) == {(name, "critic"): 1 for name in ("first", "second", "third")}
    assert again.edges(4) == {(name, "selector"): 1 for name in ("first", "second", "third")}
    silent = conversation(run(make("questions/things-2?team=majority"), {}, "red big"))
    assert len(silent.lines) == 3 and silent.edges() == {}


NESTED = """[members.author]
[members.jury]
team = "majority"
[members.boss]
rights = ["act", "send", "halt"]
[[stage]]
do = "propose"
who = ["author", "jury"]
[[stage]]
do = "talk"
who = ["boss", "author"]
order = "file"
[[stage]]
do = "act"
who = ["boss"]
"""


def test_a_team_in_a_member_s_place_speaks_with_one_voice(tmp_path: Path) -> None:
    path = tmp_path / "nested.toml"
    path.write_text(NESTED)
    replies = {"boss": ["halt", "blue big"], "author": ["size", "well"]}
    replies |= {f"jury.{name}": ["red big"] for name in ("first", "third")}
    found = conversation(run(make(f"questions/things-2?team={path}"), replies, "(pass)"))
    (voice,) = [line for line in found.lines if line.team]
    assert (voice.team, voice.speaker, voice.text) == ("jury", "jury.third", "red big")
    assert set(voice.shown) == {"author", "boss"}
    assert found.members["boss"].does == {"halt": 1, "act": 1}
    assert found.members["jury.third"].words == 2  # what its team says is not counted again
    assert found.edges()[("author", "boss")] == 2  # a proposal, and "well"


def test_a_single_player_has_no_conversation() -> None:
    found = conversation(run(make("questions/things-2"), {}, "red"))
    assert found.players == () and found.moves == () and talk_of([found]) is None


def test_phases_of_a_run_have_the_mean_of_their_games(tmp_path: Path, channels: str) -> None:
    with RunFolder.create(tmp_path / "run", {"summary": "talk"}) as opened:
        for said in ({"ann": [SAYINGS[4]]}, {"bob": [SAYINGS[4]]}):
            episode = run(Messages(Tally(), channels), said, "1")
            group = len(opened.database.summaries())
            opened.database.finish(replace(episode, key=Key("eval/test", group)))
        games = games_by_phase(opened.database)["eval/test"]
    assert games.talk is not None
    assert games.talk.shares == {"ann": 0.5, "bob": 0.5, "cat": 0.0}
    assert games.talk.channels == {"all": Traffic(2, 26)}
    assert set(games.players) == {"ann", "bob", "cat"}


def test_the_report_of_a_training_run_says_what_players_said(tmp_path: Path, channels: str) -> None:
    with RunFolder.create(tmp_path / "run", {"summary": "talk"}) as opened:
        episode = run(Messages(Tally(), channels), {"ann": [SAYINGS[4]]}, "1")
        opened.database.finish(replace(episode, key=Key("test/rl", 0)))
        report = build(opened.database, opened.path)
    assert as_json(report)["talk"]["channels"] == {"all": {"messages": 1, "bytes": 13}}
    assert "ann 100 %, bob 0 %, cat 0 %" in markdown(report)
