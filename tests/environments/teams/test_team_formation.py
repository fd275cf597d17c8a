"""Teams that form at run time: who is found, what each state does, who hears what, who goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaestra as pa
from palaestra.agents.players import PlayersAgent
from palaestra.core.agent import Agent
from palaestra.core.errors import AgentFault, InputError
from palaestra.core.formation_words import PLACE, Move, parse_move
from palaestra.core.session import Session
from palaestra.core.team_words import ASKED, PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.registry import make
from palaestra.environments.teams.protocol import facts_of, protocol_of
from palaestra.environments.teams.team_file import parse
from palaestra.environments.teams.team_formation import Groups
from palaestra.evaluation.statistics.conversation import conversation
from tests.core.test_game import Delayed, Kept, Killed, play, same

FILE = """
[members.host]
[members.ann]
skills = "painting, colours"
[members.bob]
skills = "music, sound"
[members.cat]
skills = "music"
[members.dan]
skills = "wood"
[formation]
member = "host"
"""
JOINT = "find: SKILLS, or: ask NAME: WORDS, or: assign NAME: TASK, or: start NAME: TASK, or: "


def groups(text: str = FILE) -> Groups:
    protocol = protocol_of(parse("team", text), 0)
    assert isinstance(protocol, Groups)
    protocol.begin("start")
    return protocol


def give(protocol: Groups, *replies: tuple[str, str]) -> str | None:
    decision = None
    for player, text in replies:
        assert player in protocol.next() and protocol.refusal(text, player) is None
        decision = protocol.take(player, text)
    return decision


# ── words ────────────────────────────────────────────────────────────────────


def test_replies_of_hosts_are_read() -> None:
    assert parse_move("Find: a, b") == Move("find", "a, b")
    assert parse_move("assign Ann Lee: paint\nit: red ") == Move(
        "assign", "paint\nit: red", "Ann Lee"
    )
    assert parse_move(" wait. ") == Move("wait", "")
    assert parse_move("conclude: x: y") == Move("conclude", "x: y")
    for text in ("conclude", "find", "ask: what", "wait for ann", "red"):
        assert parse_move(text) == Move("conclude", text)


# ── states ───────────────────────────────────────────────────────────────────


def test_a_search_lets_the_best_matches_join() -> None:
    protocol = groups(f"{FILE}invited = 1")
    assert protocol.next() == ["host"]
    assert protocol.asked("host") == "Reply with one of: find: SKILLS, or: conclude: ACTION."
    give(protocol, ("host", "find: a sound, with music"))
    assert protocol.asked("host") == (
        f"Free in your group:\n- bob: music, sound\nReply with one of: {JOINT}conclude: ACTION."
    )
    give(protocol, ("host", "find: music"), ("host", "find: dance"))
    assert protocol.groups["host"].members == ["bob", "cat"]
    assert protocol.asked("host").startswith("Nobody else is registered for: dance\nFree in your")


def test_in_a_discussion_a_member_says_something_to_its_group() -> None:
    protocol = groups()
    give(protocol, ("host", "find: music"), ("host", "ask Cat: which key?"))
    assert protocol.said() == [("host", "host to cat: which key?")]
    assert protocol.audience() == ("host", "cat", "bob")
    assert protocol.next() == ["cat"] and protocol.asked("cat") == ASKED["talk"]
    give(protocol, ("cat", "C"))
    assert protocol.said() == [("cat", "cat: C")] and protocol.next() == ["host"]


def test_the_group_waits_for_an_assigned_task_and_not_for_a_started_one() -> None:
    protocol = groups()
    give(protocol, ("host", "find: music"), ("host", "find: wood"), ("host", "start bob: play"))
    assert protocol.next() == ["host", "bob"]
    assert protocol.asked("bob") == "Your work: play\nReply with the result, or: find: SKILLS."
    assert protocol.asked("host").endswith("or: wait.")
    assert protocol.refusal("conclude: x", "host") == protocol.asked("host")
    give(protocol, ("host", "assign cat: sing"))
    assert protocol.next() == ["bob", "cat"]
    give(protocol, ("cat", "la"))
    assert protocol.said() == [("cat", "cat: Part of the task: sing Answer: la")]
    assert protocol.next() == ["host", "bob"]
    give(protocol, ("host", "start dan: saw"), ("host", "wait"))
    assert protocol.next() == ["bob", "dan"]
    give(protocol, ("dan", "done"))
    assert protocol.next() == ["bob"]
    give(protocol, ("bob", "played"))
    assert give(protocol, ("host", "conclude: all done")) == "all done"
    assert protocol.facts() == {
        "groups": [{"host": "host", "under": "", "members": ["cat", "bob", "dan"], "task": ""}]
    }
    protocol.begin_turn("next")
    assert protocol.next() == ["host"] and protocol.groups["host"].members == ["cat", "bob", "dan"]


def test_a_worker_forms_a_group_whose_conclusion_is_its_result() -> None:
    protocol = groups()
    give(protocol, ("host", "find: painting"), ("host", "assign ann: a painted drum"))
    give(protocol, ("ann", "find: sound"))
    assert protocol.kind("ann", "find: wood") == "find" and protocol.next() == ["ann"]
    assert protocol.asked("ann") == (
        "Your work: a painted drum\nFree in your group:\n- bob: music, sound\n"
        f"Reply with one of: {JOINT}conclude: RESULT."
    )
    give(protocol, ("ann", "assign bob: beat it"))
    assert protocol.asked("bob") == "Your work: beat it\nReply with the result."  # depth = 2
    assert protocol.kind("bob", "find: wood") == "talk"
    give(protocol, ("bob", "boom"))
    assert protocol.said() == [("bob", "bob: Part of the task: beat it Answer: boom")]
    assert protocol.audience() == ("ann", "bob")
    give(protocol, ("ann", "conclude: red boom"))
    assert protocol.said() == [("ann", "ann: Part of the task: a painted drum Answer: red boom")]
    assert protocol.audience() == ("host", "ann")
    assert protocol.kind("host", "red") == "act"
    assert give(protocol, ("host", "red boom")) == "red boom"
    assert [(one["host"], one["under"]) for one in protocol.facts()["groups"]] == [
        ("ann", "host"), ("host", "")
    ]  # fmt: skip


def test_a_host_that_used_its_steps_can_only_wait_and_conclude() -> None:
    protocol = groups(f"{FILE}steps = 2")
    give(protocol, ("host", "find: music"), ("host", "start bob: play"))
    assert protocol.asked("host").endswith("Reply with one of: wait.")
    assert protocol.refusal("find: wood", "host") == protocol.asked("host")
    give(protocol, ("host", "wait"), ("bob", "played"))
    assert protocol.asked("host").endswith("Reply with one of: conclude: ACTION.")
    assert give(protocol, ("host", "conclude: x")) == "x"


def test_members_that_are_busy_are_neither_found_nor_assigned() -> None:
    protocol = groups()
    give(protocol, ("host", "find: music, painting"), ("host", "start ann: paint"))
    give(protocol, ("host", "start bob: play"), ("ann", "find: music"))
    assert protocol.groups["ann"].members == ["cat"]
    give(protocol, ("host", "start cat: sing"), ("ann", "assign cat: hum"))
    assert protocol.groups["ann"].tasks == {} and "cat is not free." in protocol.asked("ann")
    assert protocol.refusal("ask eve: hm", "host") == (
        "'eve' is not in your group; name one of ann, cat, bob."
    )


# ── members that fail ────────────────────────────────────────────────────────


def test_the_task_of_a_member_that_passes_goes_to_the_best_match_who_joins() -> None:
    protocol = groups(f"{FILE}invited = 1")
    give(protocol, ("host", "find: sound"), ("host", "assign bob: play music"), ("bob", PASS))
    assert protocol.next() == ["cat"] and protocol.groups["host"].members == ["bob", "cat"]
    give(protocol, ("cat", PASS))
    assert protocol.next() == ["host"] and protocol.out == ["bob", "cat"]
    assert protocol.asked("host") == (
        "bob is out of the team's work.\ncat took the work.\ncat is out of the team's work.\n"
        "Nobody else is registered for: play music\n"
        "Reply with one of: find: SKILLS, or: conclude: ACTION."
    )
    assert give(protocol, ("host", PASS)) == PASS  # nobody decides without the outermost host


def test_the_group_of_a_host_that_passes_ends_and_its_workers_are_free_after_their_replies() -> (
    None
):
    protocol = groups()
    give(protocol, ("host", "find: painting"), ("host", "assign ann: music with colours"))
    give(protocol, ("ann", "find: music"), ("ann", "start bob: play music"))
    assert protocol.next() == ["ann", "bob"]
    give(protocol, ("ann", PASS))
    assert protocol.groups["host"].tasks == {"cat": "music with colours"}  # bob still owes a reply
    assert protocol.take("bob", "played") is None and protocol.said() == []
    assert protocol.next() == ["cat"]
    give(protocol, ("cat", PASS))
    assert protocol.groups["host"].tasks == {"bob": "music with colours"}


# ── places in the reserve ────────────────────────────────────────────────────

PLACES = "[members.one]\nreserve = true\n[members.two]\nreserve = true\n"


def test_who_registers_before_a_search_is_found_by_its_skills() -> None:
    protocol = groups(PLACES + FILE)
    give(protocol, ("host", "find: dance"))
    assert protocol.next() == ["one", "two"]
    assert protocol.asked("one") == protocol.refusal("hello", "one") == PLACE
    assert protocol.kind("one", "register: dance") == "register"
    give(protocol, ("one", "Register: dance and song"), ("two", PASS))
    assert protocol.next() == ["host"] and protocol.groups["host"].members == ["one"]
    assert "- one: dance and song" in protocol.asked("host")
    give(protocol, ("host", "find: music"))
    assert protocol.next() == ["two"]  # only free places are asked again
    give(protocol, ("two", PASS), ("host", "assign one: dance"))
    assert protocol.asked("one").startswith("Your skills: dance and song.\nYour work: dance\n")
    give(protocol, ("one", "danced"), ("host", "conclude: x"))
    assert protocol.facts()["joined"] == {"one": "dance and song"}
    protocol.begin_turn("next")
    assert protocol.groups["host"].members[0] == "one"  # it stays, as others do


def test_searches_at_the_same_time_wait_for_the_same_replies() -> None:
    protocol = groups(PLACES + FILE)
    give(protocol, ("host", "find: painting"), ("one", PASS), ("two", PASS))
    give(protocol, ("host", "start ann: paint"))
    assert protocol.next() == ["host", "ann"]
    give(protocol, ("host", "find: wood"), ("ann", "find: music"))
    assert protocol.next() == ["one", "two"]
    give(protocol, ("one", "register: music"), ("two", "register: wood"))
    assert protocol.next() == ["host", "ann"]
    assert protocol.groups["host"].members[1:] == ["two", "dan"]
    assert protocol.groups["ann"].members == ["one", "cat", "bob"]


def test_a_host_makes_members_of_the_skills_that_it_needs() -> None:
    protocol = groups(f'{PLACES}{FILE}places = "make"')
    assert protocol.asked("host").startswith("Reply with one of: find: SKILLS, or: make: SKILLS, ")
    give(protocol, ("host", "make: algebra"), ("host", "assign one: x + 1 = 2"))
    assert protocol.asked("one") == (
        "Your skills: algebra.\nYour work: x + 1 = 2\n"
        "Reply with the result, or: find: SKILLS, or: make: SKILLS."
    )
    give(protocol, ("one", "make: sums"), ("one", "assign two: 1 + 1"))
    assert "make" not in protocol.asked("two") and protocol.next() == ["two"]
    give(protocol, ("two", PASS))  # nobody else can sum: its host has to go on alone
    assert protocol.asked("one").endswith("Reply with one of: find: SKILLS, or: conclude: RESULT.")
    give(protocol, ("one", "conclude: 1"))
    assert give(protocol, ("host", "conclude: 1")) == "1"


def test_who_makes_a_member_too_late_is_told_so() -> None:
    protocol = groups(f'{PLACES}{FILE}places = "make"')
    give(protocol, ("host", "make: algebra"), ("host", "start one: x"))
    assert protocol.next() == ["host", "one"]
    give(protocol, ("host", "make: music"), ("one", "make: sums"))
    assert protocol.groups["host"].members == ["one", "two"]
    assert "There is no place for another one." in protocol.asked("one")
    assert groups().refusal("make: music", "host") is not None  # where nobody can be made


# ── laws ─────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_replies_end_within_the_bound_and_are_resumed_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    depth, steps = rng.choice((1, 2, 3)), rng.choice((1, 2, 6))
    file = f"{FILE}depth = {depth}\nsteps = {steps}\n"
    if rng.random() < 0.7:
        file = f"{PLACES}{file}places = '{rng.choice(('register', 'make'))}'"
    protocol = groups(file)
    for _ in range(2):
        decision, replies = None, 0
        while decision is None:
            for player in protocol.next():
                again = groups(file)
                again.restore(json.loads(json.dumps(protocol.saved())))
                assert (again.key(), again.next()) == (protocol.key(), protocol.next())
                assert again.asked(player) == protocol.asked(player)
                text = PASS if rng.random() < 0.05 else protocol.sample(rng, lambda: "wood", player)
                assert protocol.refusal(text, player) is None
                decided = protocol.take(player, text)
                assert again.take(player, text) == decided
                decision = decision or decided
                assert (again.key(), again.said()) == (protocol.key(), protocol.said())
                protocol, replies = again, replies + 1
        assert replies <= protocol.most_replies()
        protocol.begin_turn("more")


def test_groups_keep_the_contract(tmp_path: Path) -> None:
    file, inner = tmp_path / "team.toml", 'skills = "wood"\nteam = "majority"'
    file.write_text(PLACES + FILE.replace('skills = "wood"', inner))
    for id in (f"questions/things-2?team={file}", f"tests.core.games:Tally?team=ann:{file}"):
        assert [found for found in check_environment(id) if not found.holds] == []


# ── runs ─────────────────────────────────────────────────────────────────────


class Crashing(Agent):
    """An agent that crashes as soon as it is asked."""

    name = "crashing"

    async def run(self, session: Session) -> None:
        raise AgentFault("crash", "planted")


def registered(skills: dict[str, str], keys: str = "") -> str:
    members = "".join(
        f'[members.{name}]\nskills = "{of}"\nmodel = "reader?outside=0.0"\n'
        for name, of in skills.items()
    )
    host = '[members.host]\nmodel = "reader?right=0.0"\n'
    return f'{host}{members}{keys}\n[formation]\nmember = "host"\n'


def success(text: str, folder: Path, name: str, count: int = 24) -> float:
    file = folder / f"{name}.toml"
    file.write_text(text)
    results = pa.evaluate(
        "tests.environments.teams.skills:Skills", team=str(file), model="reader", n=count,
        run=folder / name, workers=0, progress=False,
    )  # fmt: skip
    assert results.success is not None
    for episode in results.episodes[:5]:
        assert [turn["groups"][-1]["host"] for turn in facts_of(episode)] == ["host"]
        found = conversation(episode)
        assert found.members["host"].does["find"] >= 1
        assert all(line.shown.keys() >= {"host"} for line in found.lines)
    return results.success


def test_a_team_finds_who_can_do_what_although_one_crashes(tmp_path: Path) -> None:
    skills = {"ann": "physics", "bob": "music", "cat": "law"}
    assert success(registered(skills), tmp_path, "all") == 1.0
    crashing = f'[members.dan]\nskills = "law"\nmodel = "reader"\nagent = "{__name__}:Crashing"\n'
    first = registered({"ann": "physics", "bob": "music"}, crashing)
    assert success(first, tmp_path, "dead") < 0.7
    both = registered(
        {"ann": "physics", "bob": "music"}, f"{crashing}[members.eve]\nskills = 'law'"
    )
    assert success(both, tmp_path, "replaced") == 1.0


def test_groups_are_the_same_whoever_is_faster_and_go_on_where_they_were_killed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "team.toml"
    file.write_text(PLACES + FILE)
    id = f"tests.core.games:Tally?team=ann:{file}"

    def delayed(seed: int) -> dict[str, Delayed]:
        rng = random.Random(seed)
        return {"agent": Delayed(lambda: rng.randrange(4))}

    whole = play(make(id), PlayersAgent(), delayed(0), journal=(kept := Kept()))
    for most in range(0, len(kept.events), 4):
        journal = Kept(most)
        with pytest.raises(Killed):
            play(make(id), PlayersAgent(), delayed(most), journal=journal)
        resumed = play(make(id), PlayersAgent(), delayed(most), past=journal.events)
        assert same(resumed) == same(whole)


# ── files ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('member = "host"', 'member = "eve"', "names 'eve' as its host, who is no member"),
        ("[members.host]", '[members.host]\nrights = ["send"]', "its host without the right 'act'"),
        ("[members.host]", "[members.host]\nfrom_turn = 2", "as its host, who is not always there"),
        ('skills = "wood"', "", "has a member 'dan' whom no search finds; say its skills"),
        (
            'skills = "wood"',
            'skills = "wood"\nrights = ["act"]',
            "without the right 'send'; add it",
        ),
        (
            'skills = "wood"',
            'skills = "wood"\nrights = ["send", "halt"]',
            "the right 'halt', which groups do not use",
        ),
        (
            'skills = "wood"',
            'skills = "wood"\nreserve = true',
            "a reserve's place with its own skills",
        ),
        (
            'member = "host"',
            'member = "host"\nplaces = "make"',
            "how places are filled, and has none",
        ),
        (
            'skills = "wood"',
            'skills = "wood"\nrights = ["act", "send", "spawn"]',
            "the right 'spawn', which it cannot use",
        ),
        ("[formation]", "[network]\n[formation]", "must have one protocol"),
        ("\n[members.host]", 'see = "own"\n[members.host]', "forms groups with `see` or a"),
        ('member = "host"', 'member = "host"\ndepth = 0', "'formation.depth': Input should be"),
    ],
)
def test_files_that_cannot_work_are_refused_in_a_sentence(
    old: str, new: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        parse("team", FILE.replace(old, new))


def test_members_come_and_go() -> None:
    text = FILE.replace('skills = "wood"', 'skills = "wood"\nfrom_turn = 2\nuntil_turn = 2')
    protocol = groups(text)
    give(protocol, ("host", "find: wood"))
    assert protocol.groups["host"].members == []
    give(protocol, ("host", "conclude: x"))
    protocol.begin_turn("next")
    give(protocol, ("host", "find: wood"))
    assert protocol.groups["host"].members == ["dan"]
    give(protocol, ("host", "conclude: x"))
    protocol.begin_turn("next")
    assert protocol.groups["host"].members == []
